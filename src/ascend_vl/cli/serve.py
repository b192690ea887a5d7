"""`ascend-vl serve MODEL [plan options] [-- vllm options]`: run the plan."""

import json
import shlex
import time
from typing import Annotated, Any, Literal, cast

import typer
from rich.markup import escape

from ascend_vl.cli import output, usage
from ascend_vl.language import Text

# What typer does not know is passed to vLLM as it is.
SETTINGS = {"context_settings": {"allow_extra_args": True, "ignore_unknown_options": True}}

# What vLLM logs every ten seconds.
COUNTS = "Avg prompt throughput"


def command(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help="a model directory, or the name of a repository")],
    max_model_len: Annotated[int | None, typer.Option(help="tokens of prompt and answer together")] = None,
    drawing: Annotated[str | None, typer.Option(help="on | off (HiDream-O1)")] = None,
    tensor_parallel_size: Annotated[int | None, typer.Option("--tensor-parallel-size", "-tp", help="chips")] = None,
    dtype: Annotated[str | None, typer.Option(help="float16 | bfloat16 | float32")] = None,
    gpu_memory_utilization: Annotated[float | None, typer.Option(help="share of a chip's memory, 0 to 1")] = None,
    max_num_seqs: Annotated[int | None, typer.Option(help="requests computed together")] = None,
    host: Annotated[str, typer.Option(help="address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="port to listen on")] = 8000,
    served_model_name: Annotated[str | None, typer.Option(help="the model's name in requests")] = None,
    api_key: Annotated[str | None, typer.Option(envvar="ASCEND_VL_API_KEY", help="required of every request")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="name every object that is replaced")] = False,
    as_json: output.Json = False,
    lang: output.Lang = None,
) -> None:
    """Serve a model: plan, start vLLM, say when it has answered, stop with Ctrl-C. Other options go to vLLM."""

    def body() -> int:
        from ascend_vl.plan import Wishes

        usage.require_model("serve", model, context)
        wishes = Wishes(
            max_model_len=max_model_len,
            drawing=cast('Literal["on", "off"] | None', _one_of("--drawing", drawing, "on", "off")),
            tensor_parallel_size=tensor_parallel_size,
            dtype=cast(Any, _one_of("--dtype", dtype, "float16", "bfloat16", "float32")),
            gpu_memory_utilization=gpu_memory_utilization,
            max_num_seqs=max_num_seqs,
            host=host,
            port=port,
            served_model_name=served_model_name,
            api_key=api_key,
            extra=tuple(context.args),
        )
        return run(model, wishes, explain=explain, as_json=as_json)

    output.run(body, as_json=as_json, lang=lang)


def _one_of(name: str, value: str | None, *allowed: str) -> str | None:
    if value is not None and value not in allowed:
        raise typer.BadParameter(f"{name}: {' | '.join(allowed)}")
    return value


def run(model: str, wishes: Any, *, explain: bool, as_json: bool) -> int:
    """Serve until the server ends or the user interrupts."""
    from ascend_vl.checkpoint import inspect_checkpoint
    from ascend_vl.machine import detect
    from ascend_vl.plan import adapting, resolve
    from ascend_vl.serve import display, process

    checkpoint = inspect_checkpoint(model)
    checkpoint.require_servable()
    machine = detect()
    plan = resolve(checkpoint, wishes, machine)
    if adapting.ask(plan, told=show_finding):
        plan = resolve(checkpoint, wishes, machine)
    show_plan(plan)
    try:
        with display.starting(model, output.remarks) as on_stage, process.run_plan(plan, on_stage=on_stage) as server:
            if as_json:
                output.print_json(ready_json(server))
            else:
                show_ready(server)
            if explain:
                show_replaced(server.status)
            return follow(server)
    except KeyboardInterrupt:
        output.remarks.print(str(Text("stopped", "已停止")))
        raise


def show_finding(name: str, finding: Any) -> None:
    """A line a probe, as it is answered. To stderr."""
    words = {True: Text("fault", "故障"), False: Text("fine", "正常"), None: Text("no verdict", "无结论")}
    line = f"{Text('probe', '探测')} {name}: {words[finding.fault]}: {finding.reason}"
    output.remarks.print(line, markup=False, soft_wrap=True, style="dim")


def show_plan(plan: Any) -> None:
    """The command and its environment, warnings, and the plain word when there is no NPU. To stderr."""
    from ascend_vl.adaptations.override import switched_off
    from ascend_vl.plan.outputs.command import launch

    if switched_off():
        output.remarks.print(str(Text("ASCEND_VL=off: stock vLLM, nothing of ours", "ASCEND_VL=off：原样运行 vLLM")))
    elif plan.machine.kind == "cpu":
        output.remarks.print(
            str(Text("no NPU found: serving on the CPU", "未发现 NPU：在 CPU 上提供服务")), style="yellow"
        )
    for warning in plan.warnings:
        output.remarks.print(f"[yellow]{Text('warning', '注意')}[/yellow] {escape(str(warning))}")
    environment = " ".join(f"{name}={shlex.quote(value)}" for name, value in plan.environment.items())
    line = f"{environment} {shlex.join(without_key(launch(plan)))}".strip()
    output.remarks.print(line, markup=False, soft_wrap=True, style="dim")


def without_key(words: list[str]) -> list[str]:
    """A command to be shown: what follows --api-key is hidden."""
    shown = ["--api-key=…" if word.startswith("--api-key=") else word for word in words]
    return ["…" if index and shown[index - 1] == "--api-key" else word for index, word in enumerate(shown)]


def ready_json(server: Any) -> dict[str, Any]:
    """Schema 1 of `serve --json`, printed once when the server has answered."""
    return {
        "schema": 1,
        "url": server.url,
        "model": server.model,
        "pid": server.process.pid,
        "log": str(server.log_path),
        "stages": server.stages,
        "command": server.plan.command,
        "environment": server.plan.environment,
        "status": server.status,
    }


def show_ready(server: Any) -> None:
    """Where it is, how long it took, and a request to copy."""
    stages = server.stages
    took = f"{stages['ready_seconds']:.1f} s"
    output.console.print(f"[green]{Text('ready', '就绪')}[/green] {server.url} ({took})")
    key = " -H 'Authorization: Bearer $KEY'" if server.api_key else ""
    body = json.dumps({"model": server.model, "messages": [{"role": "user", "content": "1+1=?"}]}, ensure_ascii=False)
    output.console.print(
        f"curl {server.url}/v1/chat/completions -H 'Content-Type: application/json'{key} -d {shlex.quote(body)}",
        markup=False,
        soft_wrap=True,
    )
    output.console.print(f"ascend-vl ask {server.url} QUESTION --image PICTURE", markup=False)
    output.console.print(f"{Text('log', '日志')}: {server.log_path}", markup=False, soft_wrap=True)


def show_replaced(status: dict[str, Any] | None) -> None:
    """Every object replaced in the API server and in each worker, with file and line; and every adaptation's state."""
    if status is None:
        output.console.print(str(Text("nothing is replaced", "没有替换任何对象")))
        return
    for item in status["api_server"]["replaced"]:
        output.console.print(f"api server  {item['name']}  {item['original']} -> {item['ours']}", soft_wrap=True)
    for worker in status["workers"]:
        for item in worker["replaced"]:
            output.console.print(
                f"worker {worker['rank']}  {item['name']}  {item['original']} -> {item['ours']}", soft_wrap=True
            )
        for outcome in worker["adaptations"]:
            output.console.print(f"worker {worker['rank']}  {outcome['id']}: {outcome['state']}", soft_wrap=True)
            for item in outcome.get("replaced", []):
                output.console.print(f"    {item['name']}  {item['original']} -> {item['ours']}", soft_wrap=True)


def follow(server: Any) -> int:
    """Pass the server's log on to stderr, without its regular counts, until it ends (2) or the user interrupts."""
    with open(server.log_path, errors="replace") as log:
        log.seek(0, 2)
        while server.process.poll() is None:
            new = log.read().splitlines(keepends=True)
            output.remarks.file.writelines(line for line in new if COUNTS not in line)
            output.remarks.file.flush()
            time.sleep(0.5)
    output.remarks.print(f"{Text('vLLM ended by itself', 'vLLM 自行退出')}: {server.log_path}", markup=False)
    return 2
