"""`python -m npu_emulator --chip 310P3 [...] -- COMMAND`: run any command on an emulated NPU, child processes included."""

import argparse
import os
import subprocess
import sys

from npu_emulator import faults, launch
from npu_emulator.install import SHARED
from npu_emulator.machine import CANN, CHIPS, GIB, Machine


def parser() -> argparse.ArgumentParser:
    """The options, all of them about the machine."""
    made = argparse.ArgumentParser(prog="python -m npu_emulator", description=__doc__)
    made.add_argument("--chip", choices=CHIPS, default="310P3")
    made.add_argument("--chips", type=int, default=1)
    made.add_argument("--memory", type=float, default=4.0, metavar="GiB", help="of each chip")
    made.add_argument("--cann", help="default: the one the stack was published with")
    made.add_argument("--stack", default="", help="vllm-ascend version the command runs with; names torch_npu's version")
    made.add_argument("--faults", default="none", help="none | default | a,b,...")
    made.add_argument("command", nargs=argparse.REMAINDER)
    return made


def machine(chip: str, chips: int, memory: float, cann: str | None, stack: str, fault_text: str) -> Machine:
    """The machine of the options. Raises ValueError for a fault that does not exist."""
    release = cann or CANN.get(stack, Machine.cann)
    return Machine(chip, chips, int(memory * GIB), release, stack, faults.parse(fault_text, chip, release))


def run(described: Machine, command: list[str]) -> int:
    """Run `command` on the machine; its exit code."""
    variables = launch.environment(described)
    try:
        return subprocess.run(command, env=variables, check=False).returncode
    finally:
        if SHARED not in os.environ:
            os.unlink(variables[SHARED])


def main() -> int:
    """Exit code of the command, or 2 when there is none."""
    made = parser()
    options = made.parse_args()
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        made.error("a command is needed after --")
    try:
        described = machine(
            options.chip, options.chips, options.memory, options.cann, options.stack, options.faults
        )
        return run(described, command)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
