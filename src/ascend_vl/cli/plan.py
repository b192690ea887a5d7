"""`ascend-vl plan MODEL`: the resolved plan for this machine or a described one."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.table import Table

from ascend_vl.cli import machine_options, output, usage
from ascend_vl.language import Text

if TYPE_CHECKING:
    from ascend_vl.machine import Machine
    from ascend_vl.plan import Plan, Wishes

SETTINGS = {"context_settings": {"allow_extra_args": True, "ignore_unknown_options": True}}
_SOURCES = {"rule": Text("rule", "规则"), "default": Text("default", "默认"), "user": Text("user", "用户")}


def command(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help="model directory, or the name of a published model")],
    chip: machine_options.Chip = None,
    chips: machine_options.Chips = None,
    memory: machine_options.Memory = None,
    held: machine_options.Held = None,
    cann: machine_options.Cann = None,
    driver: machine_options.Driver = None,
    vllm_ascend: machine_options.VllmAscend = None,
    max_model_len: Annotated[int | None, typer.Option(help="tokens of prompt and answer together")] = None,
    drawing: Annotated[str | None, typer.Option(help="on | off (HiDream-O1)")] = None,
    tensor_parallel_size: Annotated[int | None, typer.Option("--tensor-parallel-size", "-tp", help="chips")] = None,
    dtype: Annotated[str | None, typer.Option(help="float16 | bfloat16 | float32")] = None,
    gpu_memory_utilization: Annotated[float | None, typer.Option(help="share of a chip's memory, 0 to 1")] = None,
    max_num_seqs: Annotated[int | None, typer.Option(help="requests computed together")] = None,
    host: Annotated[str | None, typer.Option(help="address to listen on")] = None,
    port: Annotated[int | None, typer.Option(help="port to listen on")] = None,
    served_model_name: Annotated[str | None, typer.Option(help="the model's name in requests")] = None,
    nodes: Annotated[int, typer.Option(help="machines like this one that share the model")] = 1,
    master_addr: Annotated[str | None, typer.Option(help="address of the first of several machines")] = None,
    form: Annotated[str, typer.Option("--as", help="command | docker | compose | k8s | systemd | json")] = "command",
    as_json: output.Json = False,
    lang: output.Lang = None,
) -> None:
    """The resolved plan, with reasons and memory. Exit 1 when it does not fit. Other options go to vLLM."""

    def body() -> int:
        from ascend_vl.plan import Wishes

        usage.require_model("plan", model, context)
        _one_of("--drawing", drawing, "on", "off")
        _one_of("--dtype", dtype, "float16", "bfloat16", "float32")
        _one_of("--as", form, "command", "docker", "compose", "k8s", "systemd", "json")
        wishes = Wishes(
            max_model_len=max_model_len,
            drawing=cast(Any, drawing),
            tensor_parallel_size=tensor_parallel_size,
            dtype=cast(Any, dtype),
            gpu_memory_utilization=gpu_memory_utilization,
            max_num_seqs=max_num_seqs,
            host=host,
            port=port,
            served_model_name=served_model_name,
            nodes=nodes,
            master_addr=master_addr,
            extra=tuple(context.args),
        )
        machine = machine_options.machine(chip, chips, memory, cann, driver, vllm_ascend, held)
        return run(model, wishes, machine, "json" if as_json else form)

    output.run(body, as_json=as_json or form == "json", lang=lang)


def _one_of(name: str, value: str | None, *allowed: str) -> None:
    if value is not None and value not in allowed:
        raise typer.BadParameter(f"{name}: {' | '.join(allowed)}")


def run(model: str, wishes: "Wishes", machine: "Machine", form: str) -> int:
    """Resolve and print; 1 when it does not fit."""
    from ascend_vl.plan import DoesNotFit, resolve
    from ascend_vl.plan.outputs import FORMS, plan_json

    try:
        plan = resolve(find(model), wishes, machine)
    except DoesNotFit as refusal:
        if form == "json":
            output.print_json(plan_json(refusal.plan) | refusal.to_json())
            return refusal.exit_code
        raise
    if form == "json":
        output.print_json(plan_json(plan))
    elif form == "command":
        show(plan)
        output.console.print(FORMS["command"](plan), end="", markup=False, soft_wrap=True)
    else:
        output.console.print(FORMS[form](plan), end="", markup=False, soft_wrap=True)
        for warning in plan.warnings:
            output.remarks.print(f"{Text('warning', '警告')}: {warning}", markup=False, soft_wrap=True)
    return 0


def find(model: str) -> Any:
    """A checkpoint where files are, else the published model of that name, else whatever inspecting raises."""
    from ascend_vl.checkpoint import inspect_checkpoint
    from ascend_vl.checkpoint.hub_choice import is_repository_id
    from ascend_vl.plan.model import known_model, unknown_model

    if not Path(model).exists():
        if (known := known_model(model)) is not None:
            return known
        if not is_repository_id(model):
            raise unknown_model(model)
    checkpoint = inspect_checkpoint(model)
    checkpoint.require_servable()
    return checkpoint


def show(plan: "Plan") -> None:
    """Values with their reasons, the sum, adaptations and warnings, as remarks above the command."""
    from ascend_vl.plan.wording import memory_sum

    out = output.remarks
    table = Table(box=None, pad_edge=False)
    # A value's name is copied into a command, so it stays whole.
    for heading in (Text("value", "取值"), Text("", ""), Text("from", "来源"), Text("because", "原因")):
        table.add_column(str(heading), overflow="fold", no_wrap=heading.en == "value")
    for value in plan.values:
        rule = f" \\[{value.rule_id}]" if value.rule_id else ""
        table.add_row(value.name, str(value.value), str(_SOURCES[value.source]), f"{value.reason}{rule}")
    out.print(table)
    out.print(f"{Text('memory of a chip' if plan.machine.chips else 'memory', '内存')}: {memory_sum(plan.memory)}",
              markup=False, soft_wrap=True)  # fmt: skip
    tokens = f"{plan.memory.kv / 2**30:.2f} GiB = {plan.memory.kv_tokens}"
    out.print(f"{Text('KV cache', 'KV 缓存')}: {tokens} {Text('tokens', 'token')}", markup=False)
    if plan.machine.chips:
        listed = ", ".join(plan.adaptations) or str(Text("none", "无"))
        out.print(f"{Text('adaptations expected', '预计生效的适配')}: {listed}", markup=False, soft_wrap=True)
    for warning in plan.warnings:
        out.print(f"{Text('warning', '警告')}: {warning}", markup=False, soft_wrap=True)
