"""`ascend-vl emulate --chip 310P3 [...] -- COMMAND`: any command on an emulated NPU."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ascend_vl.cli import output
from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text

if TYPE_CHECKING:
    from npu_emulator.machine import Machine

SETTINGS = {"context_settings": {"allow_extra_args": True, "ignore_unknown_options": False}}


def command(
    words: Annotated[list[str] | None, typer.Argument(help="the command, after --", metavar="COMMAND")] = None,
    chip: Annotated[str, typer.Option("--chip", help="310P3 | 910B3")] = "310P3",
    chips: Annotated[int, typer.Option("--chips", min=1, max=16, help="chips of the emulated machine")] = 1,
    memory: Annotated[float, typer.Option("--memory", help="GiB of each chip")] = 4.0,
    cann: Annotated[str | None, typer.Option("--cann", help="default: the one the stack was published with")] = None,
    stack: Annotated[str, typer.Option("--stack", help="vllm-ascend release of .venv-ascend-RELEASE here")] = "",
    faults: Annotated[str, typer.Option("--faults", help="none | default | a,b,...")] = "none",
    as_json: output.Json = False,
    lang: output.Lang = None,
) -> None:
    """Run a command, child processes included, on an emulated NPU (emulated: evidence about no hardware). Its exit
    code.
    """

    def body() -> int:
        from npu_emulator import launch
        from npu_emulator.contract import NpuError
        from npu_emulator.stacks import StackError

        if not words:
            raise AscendVLError(
                "usage",
                Text("There is no command to run.", "没有要运行的命令。"),
                Text("It is expected after --.", "命令应写在 -- 之后。"),
                Text(
                    "For example: ascend-vl emulate --chip 310P3 -- python script.py",
                    "例如：ascend-vl emulate --chip 310P3 -- python script.py",
                ),
            )
        try:
            machine = launch.describe(chip, chips, memory, cann, stack, faults)
            print(summary(machine), file=sys.stderr, flush=True)
            # With --json the standard output is ours alone.
            code = launch.run(machine, words, stdout=sys.stderr.fileno() if as_json else None)
        except StackError as error:
            what = Text("The command changed files of the stack.", "该命令改动了环境中的文件。")
            raise failure("stack-changed", what, Text(str(error), str(error)), 1) from None
        except (ValueError, OSError, NpuError) as error:
            what = Text("The emulated machine cannot run this.", "模拟机器无法运行该命令。")
            raise failure("emulator-cannot-run", what, Text(str(error), str(error))) from None
        if as_json:
            output.print_json({"schema": 1, "emulated": True, "machine": machine.to_dict(), "exit_code": code})
        return code

    output.run(body, as_json=as_json, lang=lang)


def summary(machine: "Machine") -> Text:
    """One line about the machine: what it is, and how much smaller than a real one."""
    from npu_emulator import faults, launch

    gib, named = f"{machine.memory_bytes / launch.GIB:.4g} GiB", faults.listed(machine.faults)
    return Text(
        launch.summary(machine),
        f"模拟：{machine.chips} x {machine.chip}，每颗 {gib}，为真实芯片的 1:{machine.scale:.3g}；"
        f"CANN {machine.cann}；故障：{named}",
    )


def failure(code: str, what: Text, why: Text, exit_code: int = 2) -> AscendVLError:
    """An error of this command."""
    do = Text(
        "ascend-vl emulate --help shows the form; make the stack again if it was changed.",
        "用 ascend-vl emulate --help 查看用法；环境被改动时请重新生成。",
    )
    return AscendVLError(code, what, why, do, exit_code)
