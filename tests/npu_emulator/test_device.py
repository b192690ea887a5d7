"""The emulated device, in processes of its own: loading it changes PyTorch for the whole process."""

import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "device_checks.py"
sys.path.insert(0, str(SCRIPT.parent))

import device_checks  # noqa: E402

CHECKS = [name for name in vars(device_checks) if name.startswith("check_")]


@functools.cache
def outcomes(options: str) -> dict[str, str | None]:
    """Check -> what went wrong, for all checks of one machine, from one process."""
    names = [name for name in CHECKS if device_checks.MACHINES.get(name, "") == options]
    command = [sys.executable, "-m", "npu_emulator", *options.split(), "--", sys.executable, str(SCRIPT), *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    missing = dict.fromkeys(names, f"did not run:\n{done.stderr[-2000:]}")
    return missing | dict(lines)


@pytest.mark.parametrize("name", CHECKS)
def test_device(name: str) -> None:
    wrong = outcomes(device_checks.MACHINES.get(name, ""))[name]
    assert wrong is None, wrong
