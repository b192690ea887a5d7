"""Running a command on an emulated machine: environment variables that its child processes inherit, and nothing
else.
"""

import contextlib
import hashlib
import math
import os
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from npu_emulator import build, faults
from npu_emulator.install import SHARED, SITE_PACKAGES
from npu_emulator.machine import CANN, GIB, VARIABLE, Machine, from_json
from npu_emulator.stacks import StackError, cache, differences

PACKAGE = Path(__file__).resolve().parent
# vLLM compiles ahead of time from torch 2.10 on. These releases were published with an older torch than the one they
# run with here, whose cache of ahead-of-time graphs takes Inductor's output only.
NOT_AHEAD_OF_TIME = {"VLLM_USE_AOT_COMPILE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}
WITH_OLDER_TORCH = ("0.11.0", "0.18.0")


def import_folder(machine: Machine) -> Path:
    """A folder for PYTHONPATH with the stand-in packages, this package and torch_npu's metadata, and nothing else.

    The metadata has torch_npu's own entry point in group `torch.backends`, by which `import torch` loads it.
    """
    key = hashlib.sha256(str(PACKAGE).encode()).hexdigest()[:8]
    folder = cache() / f"path-{machine.torch_npu}-{key}"
    info = folder / f"torch_npu-{machine.torch_npu}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    texts = {
        "METADATA": f"Metadata-Version: 2.1\nName: torch-npu\nVersion: {machine.torch_npu}\nSummary: emulated\n",
        "entry_points.txt": "[torch.backends]\ntorch_npu = torch_npu:_autoload\n",
        "INSTALLER": "npu_emulator\n",
        "RECORD": "",
    }
    for name, text in texts.items():
        if not (info / name).exists():
            partial = info / f".{name}-{os.getpid()}"
            partial.write_text(text)
            partial.replace(info / name)
    for target in (PACKAGE, *sorted(p for p in SITE_PACKAGES.iterdir() if p.is_dir() and p.name != "__pycache__")):
        # Two processes may make the folder at once.
        with contextlib.suppress(FileExistsError):
            (folder / target.name).symlink_to(target)
    return folder


def environment(machine: Machine, base: dict[str, str] | None = None) -> dict[str, str]:
    """Environment of a process that runs on `machine`; `base` (this process's by default) is extended, not replaced.

    The caller removes the file named by NPU_EMULATOR_SHARED when `base` had none.
    """
    variables = dict(os.environ if base is None else base)
    path = [str(import_folder(machine))]
    path += [
        part for part in variables.get("PYTHONPATH", "").split(os.pathsep) if part and not part.startswith(str(cache()))
    ]
    variables[VARIABLE] = machine.to_json()
    variables["PYTHONPATH"] = os.pathsep.join(path)
    if machine.stack in WITH_OLDER_TORCH:
        variables |= NOT_AHEAD_OF_TIME
    if SHARED not in variables:
        handle, variables[SHARED] = tempfile.mkstemp(prefix="npu-emulator-")
        os.close(handle)
    return variables


def run(machine: Machine, command: list[str], folder: Path | None = None, stdout: int | None = None) -> int:
    """Run `command` on `machine`; its exit code, as a shell counts it when a signal ended it (128 + number).

    When `folder` (default: the current one) has the stack `machine.stack`, its programs are found first. The files of
    the stack that `command` belongs to are compared with the published hashes afterwards. Raises StackError when one
    differs, ValueError for a program of another stack, OSError when there is no such command, NpuError when the device
    cannot be built.
    """
    build.check_can_build()
    venv = stack_of(command[0], machine.stack, (folder or Path.cwd()) / f".venv-ascend-{machine.stack}")
    packages = venv / "packages" if venv is not None else None
    variables = environment(machine)
    if venv is not None:
        variables["PATH"] = os.pathsep.join([str(venv / "bin"), variables.get("PATH", os.defpath)])
    try:
        code = _followed(command, variables, stdout)
    finally:
        if SHARED not in os.environ:
            os.unlink(variables[SHARED])
    if packages is not None and (found := differences(packages)):
        raise StackError(f"files of stack {machine.stack} are not as published:\n" + "\n".join(found[:20]))
    return code


def summary(machine: Machine) -> str:
    """One line about the machine: what it is, and how much smaller than a real one."""
    return (
        f"emulated: {machine.chips} x {machine.chip} with {machine.memory_bytes / GIB:.4g} GiB each, "
        f"1:{machine.scale:.3g} of a real chip; CANN {machine.cann}; faults: {faults.listed(machine.faults)}"
    )


def stack_of(program: str, stack: str, here: Path) -> Path | None:
    """Folder of the stack whose programs are to run: that of `program` itself, or `here`; None without one.

    Raises ValueError when `program` lies in the folder of a stack that is not `stack`.
    """
    found = re.search(r"^(.*/)?\.venv-ascend-([^/]+)(?=/bin/)", program)
    if found is not None and found.group(2) != stack:
        raise ValueError(f"{program} belongs to stack {found.group(2)}: give --stack {found.group(2)}")
    venv = Path(found.group()).absolute() if found is not None else here
    return venv if stack and (venv / "packages").exists() else None


def _followed(command: list[str], variables: dict[str, str], stdout: int | None) -> int:
    """Exit code of the command, which gets the signals that are meant to end us.

    Ctrl-C reaches it from the terminal as well, so that is only waited for.
    """
    with subprocess.Popen(command, env=variables, stdout=stdout) as child, _passing_signals_to(child):
        while True:
            with contextlib.suppress(KeyboardInterrupt):
                code = child.wait()
                return code if code >= 0 else 128 - code


@contextlib.contextmanager
def _passing_signals_to(child: "subprocess.Popen[bytes]") -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def pass_on(number: int, frame: FrameType | None) -> None:
        child.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def describe(chip: str, chips: int, memory_gib: float, cann: str | None, stack: str, fault_text: str) -> Machine:
    """The machine of a command line. Raises ValueError for a chip, stack, fault or number that does not exist."""
    if not math.isfinite(memory_gib):
        raise ValueError(f"{memory_gib} GiB is no size of a memory")
    release = cann or CANN.get(stack, Machine.cann)
    described = Machine(chip, chips, int(memory_gib * GIB), release, stack, faults.parse(fault_text, chip, release))
    return from_json(described.to_json())
