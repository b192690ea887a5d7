"""`python -m npu_emulator --chip 310P3 [...] -- COMMAND`: run any command on an emulated NPU, child processes
included.
"""

import argparse
import sys

from npu_emulator import launch
from npu_emulator.contract import NpuError
from npu_emulator.machine import CHIPS
from npu_emulator.stacks import StackError


def parser() -> argparse.ArgumentParser:
    """The options, all of them about the machine."""
    made = argparse.ArgumentParser(prog="python -m npu_emulator", description=__doc__)
    made.add_argument("--chip", choices=CHIPS, default="310P3")
    made.add_argument("--chips", type=int, default=1)
    made.add_argument("--memory", type=float, default=4.0, metavar="GiB", help="of each chip")
    made.add_argument("--cann", help="default: the one the stack was published with")
    made.add_argument(
        "--stack", default="", help="vllm-ascend version; with .venv-ascend-VERSION here, its programs run"
    )
    made.add_argument("--faults", default="none", help="none | default | a,b,...")
    made.add_argument("command", nargs=argparse.REMAINDER)
    return made


def main() -> int:
    """Exit code of the command; 2 when it cannot run, 1 when it changed files of its stack."""
    made = parser()
    options = made.parse_args()
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        made.error("a command is needed after --")
    try:
        machine = launch.describe(
            options.chip, options.chips, options.memory, options.cann, options.stack, options.faults
        )
        print(launch.summary(machine), file=sys.stderr, flush=True)
        return launch.run(machine, command)
    except StackError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except (ValueError, OSError, NpuError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
