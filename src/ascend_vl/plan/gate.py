"""What stops a plan before any sum is made, and what is only remarked."""

from typing import NoReturn

from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text
from ascend_vl.machine import Machine
from ascend_vl.machine.products import chip_row
from ascend_vl.plan import sharing
from ascend_vl.plan.lint import serve_command
from ascend_vl.plan.lint.shell import Command, Word
from ascend_vl.plan.memory import Memory, has_full_mask
from ascend_vl.plan.model import PUBLISHED, Model
from ascend_vl.plan.parts import Wishes
from ascend_vl.rules import version_row
from ascend_vl.rules.conditions import Subject


def check(model: Model, wishes: Wishes, machine: Machine) -> list[Text]:
    """Refuse what cannot be served; the warnings of what can.

    Raises AscendVLError `chip-unsupported`, `version-cannot-serve` (both exit code 1) or `wish-impossible`.
    """
    _chip(machine)
    _wishes(model, wishes, machine)
    return _version(model, machine)


def _chip(machine: Machine) -> None:
    if machine.kind == "none":
        name = machine.chips[0].name
        raise AscendVLError(
            "chip-unsupported",
            Text(f"The chip {name} cannot be served on.", f"芯片 {name} 无法用于部署。"),
            Text("vllm-ascend does not support it.", "vllm-ascend 不支持该芯片。"),
            Text(
                "Use a 310P, 910B or A3, or plan for another machine with --chip.",
                "请使用 310P、910B 或 A3，或用 --chip 指定其他机器。",
            ),
            exit_code=1,
        )


def _wishes(model: Model, wishes: Wishes, machine: Machine) -> None:
    ways = wishes.tensor_parallel_size
    if ways is not None and (ways < 1 or model.text.heads % ways or model.vision.heads % ways):
        refuse(
            f"--tensor-parallel-size {ways}",
            Text(
                f"It must divide {model.text.heads} attention heads and {model.vision.heads} vision heads.",
                f"它必须整除 {model.text.heads} 个注意力头和 {model.vision.heads} 个视觉头。",
            ),
        )
    chips = len(machine.chips) * wishes.nodes
    if ways is not None and machine.chips and ways > chips:
        refuse(f"--tensor-parallel-size {ways}", Text(f"There are {chips} chips.", f"只有 {chips} 颗芯片。"))
    length = wishes.max_model_len
    if length is not None and not 0 < length <= model.text.max_positions:
        limit = model.text.max_positions
        refuse(f"--max-model-len {length}", Text(f"The checkpoint allows 1 to {limit}.", f"权重允许 1 到 {limit}。"))
    share = wishes.gpu_memory_utilization
    if share is not None and not 0 < share <= 1:
        refuse(
            f"--gpu-memory-utilization {share}",
            Text("It is a share: above 0, at most 1.", "它是比例：大于 0，不超过 1。"),
        )
    chip = chip_row(machine.chips[0].name) if machine.chips else None
    if wishes.dtype == "bfloat16" and chip is not None and not chip.bf16:
        why = Text(f"{chip.title.en} computes no bfloat16.", f"{chip.title.zh} 不支持 bfloat16。")
        refuse("--dtype bfloat16", why)
    if wishes.drawing == "on" and not model.has_head:
        refuse("--drawing on", Text("This checkpoint has no drawing head.", "该权重没有绘图头。"))
    if wishes.nodes < 1 or (wishes.nodes > 1 and machine.kind == "310P"):
        refuse(
            f"--nodes {wishes.nodes}",
            Text("vllm-ascend runs 310P on one machine only.", "vllm-ascend 在 310P 上只支持单机。"),
        )


def refuse(option: str, why: Text) -> NoReturn:
    """Raises AscendVLError `wish-impossible` for an option."""
    raise AscendVLError(
        "wish-impossible",
        Text(f"{option} is not possible here.", f"此处不能使用 {option}。"),
        why,
        Text("Leave the option out to let the plan choose.", "去掉该选项，让方案自行选择。"),
        exit_code=1,
    )


def _version(model: Model, machine: Machine) -> list[Text]:
    version = machine.vllm_ascend
    if not machine.chips:
        return []
    if version is None:
        return [Text("vllm-ascend is not installed here.", "此处未安装 vllm-ascend。")]
    row = version_row(version)
    if row is None:
        return [
            Text(
                f"vllm-ascend {version} is not in the rule table: it is served without adaptations.",
                f"规则表中没有 vllm-ascend {version}：将不加适配直接运行。",
            )
        ]
    status, why = (row.on_310p, row.why_310p) if machine.kind == "310P" else (row.on_a2, row.why_a2)
    spared = row.padded_heads_only and model.vision.head_dim % 16 == 0
    if status in ("unsupported", "fails") and not (spared and machine.kind == "310P"):
        raise AscendVLError(
            "version-cannot-serve",
            Text(
                f"vllm-ascend {version} cannot serve {model.name} on {machine.kind}.",
                f"vllm-ascend {version} 不能在 {machine.kind} 上运行 {model.name}。",
            ),
            why,
            Text("ascend-vl doctor names the release to move to.", "用 ascend-vl doctor 查看应换用的版本。"),
            exit_code=1,
        )
    return [why] if status in ("adapted", "unverified", "fails") else []


def flags(command: list[str], given: tuple[str, ...], machine: Machine) -> list[Text]:
    """What lint calls an error in the planned command, so that the two never disagree; unknown options in `given`."""
    serve = serve_command.as_serve(Command(tuple(Word(word, 1) for word in command)))
    if serve is None:
        return []
    subject = Subject(machine.kind, machine.product, machine.vllm_ascend)
    found = [one for one in serve_command.judge(serve, subject) if one.severity == "error"]
    spelled = {word.partition("=")[0] for word in given}
    found = [one for one in found if one.rule != "lint-flag-unknown" or one.what in spelled]
    return [
        Text(
            f"{one.title.en}: {one.what}. {one.text.en} {one.fix.en}",
            f"{one.title.zh}：{one.what}。{one.text.zh}{one.fix.zh}",
        )
        for one in found
    ]


def remarks(model: Model, wishes: Wishes, machine: Machine, memory: Memory, draws: bool) -> list[Text]:
    """Warnings that depend on what was chosen."""
    found = []
    if draws and machine.kind == "310P":
        found.append(
            Text(
                "Nobody has shown HiDream-O1 drawing in float16: check the first pictures on this chip.",
                "尚无人证明 HiDream-O1 能以 float16 绘图：请检查本芯片上的首批图片。",
            )
        )
    if model.has_head and model.drawing == PUBLISHED:
        found.append(
            Text(
                "Nobody has shown that HiDream-O1's text answers are useful; run ascend-vl verify before using them.",
                "尚无人证明 HiDream-O1 的文本回答可用；使用前请运行 ascend-vl verify。",
            )
        )
    if model.quantised and machine.chips and not model.quantised.startswith("ModelSlim"):
        found.append(
            Text(
                f"Nothing is known about this quantised layout on an NPU: {model.quantised}.",
                f"这种量化格式在 NPU 上的情况未知：{model.quantised}。",
            )
        )
    if model.family == "qwen3-vl-moe" and machine.kind == "310P":
        found.append(
            Text(
                "Mixture-of-experts models were not surveyed on 310P: run ascend-vl verify first.",
                "310P 上的混合专家模型未经调研：请先运行 ascend-vl verify。",
            )
        )
    if has_full_mask(machine.kind, machine.vllm_ascend) and memory.choice.max_model_len > 16384:
        found.append(
            Text(
                f"The causal mask alone takes {memory.mask / 2**30:.1f} GiB at this length.",
                f"此长度下仅因果掩码就占 {memory.mask / 2**30:.1f} GiB。",
            )
        )
    if held := sharing.held_bytes(machine):
        who = ", ".join(f"{holder.name} ({holder.pid})" for chip in machine.chips for holder in chip.holders)
        size = f"{held / 2**30:.1f} GiB"
        size += f" ({who})" if who else ""
        found.append(
            Text(
                f"Others hold up to {size} of a chip. vLLM measures at its start; it must not grow later.",
                f"其他进程最多占用一颗芯片的 {size}。vLLM 在启动时测量，之后不应增长。",
            )
        )
    if machine.emulated:
        found.append(
            Text(
                "emulated: this NPU is npu_emulator's, not hardware.",
                "emulated（模拟）：该 NPU 由 npu_emulator 模拟，并非硬件。",
            )
        )
    if len(machine.chips) > 1 and (machine.shm_bytes or 2**40) < 2**30 and not machine.described:
        found.append(
            Text(
                "/dev/shm is below 1 GiB: several chips need --shm-size 10g.",
                "/dev/shm 不足 1 GiB：多芯片需 --shm-size 10g。",
            )
        )
    return found
