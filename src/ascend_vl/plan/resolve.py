"""Choosing every value of a plan. The order matters: versions, dtype, length and chips, then flags and environment."""

import contextlib
import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from ascend_vl.drawing import deployment
from ascend_vl.language import Text
from ascend_vl.machine import Machine
from ascend_vl.models import names
from ascend_vl.plan import adapting, gate, sharing
from ascend_vl.plan.activations import GIB
from ascend_vl.plan.memory import Choice, Memory, add_up, longest_fit, wider, with_changes
from ascend_vl.plan.model import Model, from_checkpoint
from ascend_vl.plan.parts import DoesNotFit, Plan, Value, Wishes
from ascend_vl.rules import in_range, table

if TYPE_CHECKING:
    from ascend_vl.checkpoint import Checkpoint

ARCHITECTURES = {
    "qwen3-vl": names.QWEN3_VL,
    "qwen3-vl-moe": names.QWEN3_VL_MOE,
    "hidream-o1": names.HIDREAM_O1,
}
USER = Text("asked for", "用户指定")


def resolve(checkpoint: "Checkpoint | Model", wishes: Wishes, machine: Machine) -> Plan:
    """The plan for that checkpoint, those wishes and that machine.

    Raises DoesNotFit (its `plan` holds the sum and what would fit), or AscendVLError: `model-not-planned`,
    `chip-unsupported`, `version-cannot-serve`, `wish-impossible`.
    """
    model = checkpoint if isinstance(checkpoint, Model) else from_checkpoint(checkpoint)
    idle = sharing.idle_part(machine, wishes.tensor_parallel_size) if wishes.nodes == 1 else None
    if idle is not None:
        with contextlib.suppress(DoesNotFit):
            return sharing.on_idle_chips(_resolve(model, wishes, idle), machine)
    return _resolve(model, wishes, machine)


def _resolve(model: Model, wishes: Wishes, machine: Machine) -> Plan:
    """The plan on all of the machine's chips."""
    warnings = gate.check(model, wishes, machine)
    dtype, extra = _adapted(model, wishes, machine)
    drawing = _drawing(model, wishes, machine)
    draws = drawing.value == "on"
    eager = _eager(wishes, machine)
    sequences = _sequences(wishes, machine)
    memory, chosen = _sizes(model, wishes, machine, str(dtype.value), draws, int(str(sequences.value)))
    values = [dtype, *chosen, sequences, eager, *extra, *_fixed(model, machine, draws), *_served(wishes)]
    if model.has_head:
        values.append(drawing)
    warnings += gate.remarks(model, wishes, machine, memory, draws)
    ways = memory.choice.tensor_parallel
    findings = adapting.cached_findings(model, machine, str(dtype.value), ways)
    command = _command(model, wishes, machine, values, draws)
    warnings += gate.flags(command, wishes.extra, machine)
    plan = Plan(
        model=model,
        machine=machine,
        command=command,
        environment=_environment(machine, memory.choice.tensor_parallel),
        values=values,
        adaptations=[outcome.id for outcome in adapting.outcomes(machine, findings) if outcome.in_force],
        memory=memory,
        warnings=warnings,
        engine="vllm-ascend" if machine.chips else "vllm-cpu",
        drawing=draws,
        tensor_parallel_size=ways,
        nodes=wishes.nodes,
        secrets={"VLLM_API_KEY": wishes.api_key} if wishes.api_key else {},
    )
    if not memory.fits:
        raise DoesNotFit(plan)
    return plan


def _adapted(model: Model, wishes: Wishes, machine: Machine) -> tuple[Value, list[Value]]:
    """The dtype, and what else the adaptations of phase config set."""
    first = _dtype(model, wishes, machine)
    ways = wishes.tensor_parallel_size or 1
    # What was found is kept under the dtype that served, which on some chips is not the one asked for.
    narrow, asked = (adapting.cached_findings(model, machine, name, ways) for name in ("float16", str(first.value)))
    findings = narrow | asked
    changed, outcomes = adapting.change_arguments({"dtype": first.value}, machine, findings)
    acting = {outcome.id: outcome for outcome in outcomes if outcome.in_force}
    dtype = first
    if changed.pop("dtype") != first.value and "float16" in acting:
        dtype = Value("dtype", "float16", "rule", adapting.why("float16", machine), "float16")
    cause = acting.get("prefix-caching")
    reason = cause.reason if cause else Text("set by an adaptation", "由适配设定")
    extra = []
    for name, value in changed.items():
        spelled = json.dumps(value) if isinstance(value, dict) else value
        extra.append(Value(name, spelled, "rule", reason, cause.id if cause else None))
    return dtype, extra


def _dtype(model: Model, wishes: Wishes, machine: Machine) -> Value:
    """Before adaptations: what was asked for, else the dtype of training, else what a CPU does best."""
    if wishes.dtype:
        return Value("dtype", wishes.dtype, "user", USER)
    if machine.kind == "cpu":
        if model.parameters * 4 <= machine.memory_bytes // 8:
            why = Text(
                "the model is small: float32 is exact and needs no conversion", "模型较小：float32 精确且无需转换"
            )
            return Value("dtype", "float32", "default", why)
        return Value("dtype", "bfloat16", "default", Text("half of float32's memory", "内存为 float32 的一半"))
    why = Text("the dtype the model was trained in, and this chip computes it", "模型训练所用类型，芯片支持")
    return Value("dtype", "bfloat16", "rule", why, "chip-910b")


def _drawing(model: Model, wishes: Wishes, machine: Machine) -> Value:
    if not model.has_head:
        return Value("drawing", "off", "default", Text("this checkpoint has no drawing head", "该权重没有绘图头"))
    options = [*_nodes(wishes, machine), *wishes.extra]
    why = deployment.obstacle(deployment.of_options(options))
    if why and wishes.drawing == "on":
        gate.refuse("--drawing on", why)
    if why and wishes.drawing is None:
        return Value("drawing", "off", "default", why)
    if wishes.drawing:
        return Value("drawing", wishes.drawing, "user", USER)
    why = Text("the checkpoint has the nine tensors that draw", "权重含九个绘图张量")
    return Value("drawing", "on", "default", why)


def _eager(wishes: Wishes, machine: Machine) -> Value:
    if wishes.enforce_eager is not None:
        return Value("enforce_eager", wishes.enforce_eager, "user", USER)
    if machine.kind == "cpu":
        return Value(
            "enforce_eager", True, "default", Text("no compilation: starts in seconds", "不编译：数秒即可启动")
        )
    if machine.kind == "310P":
        why = Text(
            "graph capture on 310P is limited and fails with tensor parallelism", "310P 图捕获受限，张量并行时会失败"
        )
        return Value("enforce_eager", True, "rule", why, "flag-eager-310p")
    if in_range(machine.vllm_ascend, "0.11.0rc0", "0.12.0rc1"):
        why = Text("graph capture fails for vision models in 0.11", "0.11 中视觉模型的图捕获会失败")
        return Value("enforce_eager", True, "rule", why, "flag-eager-011")
    return Value(
        "enforce_eager", False, "default", Text("vllm-ascend's own graph mode", "使用 vllm-ascend 自带的图模式")
    )


def _sequences(wishes: Wishes, machine: Machine) -> Value:
    if wishes.max_num_seqs:
        return Value("max_num_seqs", wishes.max_num_seqs, "user", USER)
    count = 8 if machine.kind == "cpu" else 16 if machine.kind == "310P" else 64
    return Value("max_num_seqs", count, "default", Text("requests computed together", "同时计算的请求数"))


def _length(model: Model, wishes: Wishes, machine: Machine) -> Value:
    if wishes.max_model_len:
        return Value("max_model_len", wishes.max_model_len, "user", USER)
    rule = {"310P": "length-310p", "cpu": "length-cpu"}.get(machine.kind, "length-a2")
    wanted = int(table().setting(rule))
    if wanted >= model.text.max_positions:
        why = Text("all that the checkpoint was made for", "权重支持的全部长度")
        return Value("max_model_len", model.text.max_positions, "default", why)
    row = table().by_id(rule)
    assert row is not None
    return Value("max_model_len", wanted, "rule", row.title, rule)


def _utilisation(wishes: Wishes, machine: Machine) -> Value:
    if wishes.gpu_memory_utilization:
        return Value("gpu_memory_utilization", wishes.gpu_memory_utilization, "user", USER)
    old = machine.kind == "310P" and in_range(machine.vllm_ascend, None, "0.18.0rc1")
    rule = "utilisation-310p-before-018" if old else "utilisation-npu"
    row = table().by_id(rule)
    assert row is not None
    share = table().setting(rule)
    free = min((chip.free_bytes / chip.memory_bytes for chip in machine.chips if chip.memory_bytes), default=1.0)
    if free < share:
        why = Text("vLLM does not start with more than is free on the chip", "超过芯片空闲内存时 vLLM 不会启动")
        return Value("gpu_memory_utilization", max(0.05, int(free * 100) / 100), "rule", why, "memory-others")
    return Value("gpu_memory_utilization", share, "rule", row.title, rule)


def _sizes(
    model: Model, wishes: Wishes, machine: Machine, dtype: str, draws: bool, sequences: int
) -> tuple[Memory, list[Value]]:
    """Length, chips and share of memory, and the sum they lead to."""
    length = _length(model, wishes, machine)
    if machine.kind == "cpu":
        return _host_sizes(model, wishes, machine, dtype, draws, sequences, length)
    share = _utilisation(wishes, machine)
    chips = len(machine.chips) * wishes.nodes
    start = Choice(
        total=machine.chip_bytes,
        kind=machine.kind,
        version=machine.vllm_ascend,
        dtype=dtype,
        tensor_parallel=wishes.tensor_parallel_size or 1,
        max_model_len=int(str(length.value)),
        utilisation=float(str(share.value)),
        drawing=draws,
        max_num_seqs=sequences,
        others=sharing.held_bytes(machine),
    )
    if wishes.tensor_parallel_size:
        ways = Value("tensor_parallel_size", wishes.tensor_parallel_size, "user", USER)
    else:
        start, ways = _ways(model, start, chips, wishes.nodes)
    start, share = _room_outside(model, start, share)
    memory = add_up(model, start)
    if not memory.fits and length.source != "user" and (fitting := _shorter(model, start)):
        start = replace(start, max_model_len=fitting)
        memory = add_up(model, start)
        why = Text(f"{length.value} does not fit: the longest that does", f"{length.value} 放不下：取能放下的最大值")
        length = Value("max_model_len", fitting, "rule", why, "memory-non-kv")
    return with_changes(model, memory, chips), [ways, length, share]


def _ways(model: Model, start: Choice, chips: int, nodes: int) -> tuple[Choice, Value]:
    """The fewest chips with which it fits, all that can be used when it never does."""
    usable = [1, *(ways for ways in wider(model, 1) if ways <= chips)]
    if nodes > 1:
        why = Text("all chips of all machines", "所有机器的全部芯片")
        return replace(start, tensor_parallel=usable[-1]), Value("tensor_parallel_size", usable[-1], "default", why)
    for ways in usable:
        choice = replace(start, tensor_parallel=ways)
        if add_up(model, choice).fits:
            why = Text("the fewest chips that hold it", "能放下模型的最少芯片数")
            if rest := chips - ways:
                why = Text(
                    f"{why.en}; {rest} left: a second serve takes idle chips, --tensor-parallel-size shares the model",
                    f"{why.zh}；余 {rest} 颗：再次 serve 会使用空闲芯片，--tensor-parallel-size 可共同运行一个模型",
                )
            return choice, Value("tensor_parallel_size", ways, "rule", why, "memory-non-kv")
    why = Text("all chips that the attention heads can be divided over", "注意力头可整除的全部芯片")
    return replace(start, tensor_parallel=usable[-1]), Value("tensor_parallel_size", usable[-1], "default", why)


def _shorter(model: Model, choice: Choice) -> int | None:
    """The longest context that fits, None when it would be too short to be of use without being asked for."""
    fitting = longest_fit(model, choice)
    return fitting if fitting and fitting >= table().setting("length-least") else None


def _room_outside(model: Model, choice: Choice, share: Value) -> tuple[Choice, Value]:
    """A smaller share when the mask would not fit beside it, unless the user set it."""
    memory = add_up(model, choice)
    needed = memory.mask
    if share.source == "user" or needed <= memory.outside:
        return choice, share
    lowered = int((1 - needed / choice.total) * 100) / 100
    if lowered < 0.3:
        return choice, share
    why = Text("leaves room for the mask", "为掩码留出空间")
    value = Value("gpu_memory_utilization", lowered, "rule", why, "memory-mask-bytes-a-cell")
    return replace(choice, utilisation=lowered), value


def _host_sizes(
    model: Model, wishes: Wishes, machine: Machine, dtype: str, draws: bool, sequences: int, length: Value
) -> tuple[Memory, list[Value]]:
    """On a CPU the KV cache holds two requests of full length, one beyond 1 GiB; all must fit what is free."""
    ways = wishes.tensor_parallel_size or 1
    needed = int(str(length.value)) * model.kv_token_bytes(dtype, ways)
    kv = 2 * needed if 2 * needed <= GIB else max(needed, GIB)
    kv = -(-kv // 2**20) * 2**20
    total = machine.memory_available_bytes or machine.memory_bytes
    choice = Choice(
        total=total // ways,
        kind="cpu",
        version=None,
        dtype=dtype,
        tensor_parallel=ways,
        max_model_len=int(str(length.value)),
        utilisation=1.0,
        drawing=draws,
        max_num_seqs=sequences,
        kv_bytes=kv,
    )
    memory = add_up(model, choice)
    if not memory.fits and length.source != "user" and (fitting := _shorter(model, choice)):
        memory = add_up(model, replace(choice, max_model_len=fitting))
        why = Text(f"{length.value} does not fit: the longest that does", f"{length.value} 放不下：取能放下的最大值")
        length = Value("max_model_len", fitting, "rule", why, "memory-non-kv")
    two = memory.kv >= 2 * memory.choice.max_model_len * memory.kv_token
    why = Text(
        f"enough for {'two requests' if two else 'one request'} of full length; set, so that vLLM need not measure",
        f"够{'两' if two else '一'}个满长请求；显式指定，省去 vLLM 测量",
    )
    values = [length, Value("kv_cache_memory_bytes", memory.kv, "default", why)]
    if ways > 1:
        values.insert(0, Value("tensor_parallel_size", ways, "user", USER))
    else:
        why = Text("one process less to start", "少启动一个进程")
        values.append(Value("distributed_executor_backend", "uni", "default", why))
    return with_changes(model, memory, ways), values


def _fixed(model: Model, machine: Machine, draws: bool) -> list[Value]:
    """Flags that a rule alone decides."""
    values = []
    if machine.kind in ("A2", "A3"):
        why = Text("a growing cache of processed images ran servers out of memory", "图像处理缓存增长曾使服务内存耗尽")
        values.append(Value("mm_processor_cache_gb", 0, "rule", why, "flag-mm-processor-cache"))
    if machine.chips and model.quantised.startswith("ModelSlim"):
        why = Text("the checkpoint was quantised by ModelSlim", "权重由 ModelSlim 量化")
        values.append(Value("quantization", "ascend", "rule", why, "flag-quantization"))
    if draws and not in_range(machine.vllm_ascend, "0.11.0rc0", "0.12.0rc1"):
        # 0.11 schedules synchronously unless told otherwise.
        why = Text(
            "a token would be fetched one round late, behind a second slice of a drawing",
            "否则 token 会晚一轮取回，多等一个绘图片段",
        )
        values.append(Value("async_scheduling", False, "default", why))
    return [*values, _media(machine)]


def _media(machine: Machine) -> Value:
    """Video is off until asked for; on a CPU the picture that vLLM makes up for its warm-up is small."""
    limits: dict[str, object] = {"video": 0}
    if machine.kind == "cpu":
        limits["image"] = {"width": 256, "height": 256}
    why = Text(
        "video is unverified here: allow it with -- --limit-mm-per-prompt",
        "视频输入未经验证：需要时用 -- --limit-mm-per-prompt 开启",
    )
    return Value("limit_mm_per_prompt", json.dumps(limits), "default", why)


def _served(wishes: Wishes) -> list[Value]:
    wanted = {
        "host": wishes.host,
        "port": wishes.port,
        "served_model_name": wishes.served_model_name,
        "load_format": wishes.load_format,
    }
    return [Value(name, value, "user", USER) for name, value in wanted.items() if value is not None]


def _command(model: Model, wishes: Wishes, machine: Machine, values: list[Value], draws: bool) -> list[str]:
    command = ["vllm", "serve", model.argument]
    for value in values:
        command += _flag(value)
    command += _nodes(wishes, machine)
    architecture = ARCHITECTURES.get(model.family)
    if architecture and not adapting.switched_off():
        overrides: dict[str, object] = {"architectures": [architecture]}
        if model.has_head:
            overrides[names.DRAWING_KEY] = draws
        command += ["--hf-overrides", json.dumps(overrides), "--worker-extension-cls", names.WORKER_EXTENSION]
    return [*command, *wishes.extra]


def _nodes(wishes: Wishes, machine: Machine) -> list[str]:
    """Flags of the first machine of several: vLLM's own multi-node from 0.12 on, Ray before (0.11 has no --nnodes)."""
    if wishes.nodes == 1:
        return []
    if in_range(machine.vllm_ascend, None, "0.12.0rc1"):
        return ["--distributed-executor-backend", "ray"]
    address = wishes.master_addr or "HEAD_ADDRESS"
    return ["--nnodes", str(wishes.nodes), "--node-rank", "0", "--master-addr", address, "--master-port", "29501"]


def _flag(value: Value) -> list[str]:
    """The spelling of one value on vLLM's command line; nothing for what is vLLM's own default."""
    if value.name == "drawing" or (value.name == "tensor_parallel_size" and value.value == 1):
        return []
    name = value.name.replace("_", "-")
    if value.value is True:
        return [f"--{name}"]
    if value.value is False:
        return [] if name == "enforce-eager" else [f"--no-{name}"]
    return [f"--{name}", str(value.value)]


def _environment(machine: Machine, ways: int) -> dict[str, str]:
    found: dict[str, str] = {}
    if machine.kind == "cpu":
        # Otherwise vLLM binds each rank's threads to a memory node of its own, and stops where there are fewer.
        found["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
    if machine.kind == "cpu" and ways == 1:
        # Otherwise vLLM turns the uni executor back into a worker process.
        found["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    version = machine.vllm_ascend
    connects = machine.kind == "cpu" or version is None or in_range(version, "0.18.0rc1", None)
    if connects and not adapting.switched_off():
        found["VLLM_MEDIA_CONNECTOR"] = names.MEDIA_CONNECTOR
    if in_range(version, "0.11.0rc0", "0.12.0rc1"):
        found["VLLM_ASCEND_ENABLE_NZ"] = "0"
    allowed = os.environ.get("VLLM_PLUGINS")
    if allowed is not None and not machine.described:
        listed = [name for name in allowed.split(",") if name]
        needed = ["ascend", "ascend_vl"] if machine.chips else ["ascend_vl"]
        found["VLLM_PLUGINS"] = ",".join(dict.fromkeys([*listed, *needed]))
    return found
