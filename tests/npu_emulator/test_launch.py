import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from npu_emulator import build, launch, machine, stacks
from npu_emulator.contract import NpuError


def emulate(*options: str, command: list[str]) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-m", "npu_emulator", *options, "--", *command]
    return subprocess.run(arguments, capture_output=True, text=True, check=False)


def test_machine_survives_its_own_text() -> None:
    described = launch.describe("910B3", 2, 0.5, None, "0.18.0", "index-put")
    assert machine.from_json(described.to_json()) == described
    assert (described.memory_bytes, described.cann, described.torch_npu) == (2**29, "8.5.1", "2.9.0.post1")


@pytest.mark.parametrize(
    "fields",
    [
        '{"chip": "910"}',
        '{"chips": 0}',
        '{"chips": 17}',
        '{"stack": "0.19.0"}',
        '{"colour": "red"}',
        '{"memory_bytes": 0}',
    ],
)
def test_impossible_machines_are_refused(fields: str) -> None:
    with pytest.raises(ValueError, match="NPU_EMULATOR"):
        machine.from_json(fields)


def test_environment_is_extended_and_nested_runs_keep_one_path() -> None:
    base = {"PYTHONPATH": "/somewhere", "PATH": "/bin"}
    once = launch.environment(machine.Machine(), base)
    os.unlink(once["NPU_EMULATOR_SHARED"])
    twice = launch.environment(machine.Machine(chip="910B3"), once)
    assert twice["PYTHONPATH"].split(os.pathsep)[1:] == ["/somewhere"]
    assert json.loads(twice["NPU_EMULATOR"])["chip"] == "910B3"
    assert twice["NPU_EMULATOR_SHARED"] == once["NPU_EMULATOR_SHARED"]


def test_import_folder_has_the_stand_ins_and_metadata_only() -> None:
    names = {path.name for path in launch.import_folder(machine.Machine()).iterdir()}
    assert names == {"npu_emulator", "torch_npu", "acl", "torchair", "torch_npu-2.10.0.post4.dist-info"}


def test_exit_code_is_the_command_s() -> None:
    assert emulate(command=[sys.executable, "-c", "raise SystemExit(7)"]).returncode == 7


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_command_ends_by_itself_when_we_are_told_to_end(number: signal.Signals) -> None:
    code = """
import os, signal, sys, time
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda *_: (time.sleep(1), os.write(1, b"ended\\n"), sys.exit(5)))
# Unbuffered: the signal may come while this is still being written.
os.write(1, b"up\\n")
time.sleep(60)
"""
    arguments = [sys.executable, "-m", "npu_emulator", "--", sys.executable, "-c", code]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, start_new_session=True) as child:
        assert child.stdout is not None and child.stdout.readline() == "up\n"
        # Ctrl-C goes to the whole group of the terminal, the others to the process that was named.
        (os.killpg if number == signal.SIGINT else os.kill)(child.pid, number)
        assert child.stdout.read() == "ended\n"
        assert child.wait(20) == 5


def test_a_crash_is_counted_as_a_shell_does() -> None:
    assert emulate(command=["sh", "-c", "kill -SEGV $$"]).returncode == 128 + signal.SIGSEGV


@pytest.mark.parametrize(
    ("options", "command"),
    [
        (["--faults", "no-such-fault"], ["true"]),
        (["--stack", "0.19.0"], ["true"]),
        (["--memory", "inf"], ["true"]),
        (["--memory", "nan"], ["true"]),
        ([], ["/no/such/program"]),
        ([], []),
    ],
)
def test_what_cannot_run_is_exit_2(options: list[str], command: list[str]) -> None:
    done = emulate(*options, command=command)
    assert done.returncode == 2
    assert "error:" in done.stderr and "Traceback" not in done.stderr


def test_the_machine_and_its_scale_are_said_first() -> None:
    done = emulate("--memory", "4.32", "--faults", "index-put", command=["true"])
    assert "emulated: 1 x 310P3 with 4.32 GiB each, 1:10 of a real chip" in done.stderr
    assert "faults: index-put" in done.stderr


@pytest.mark.parametrize("stack", ["", "0.18.0"])
def test_a_program_of_another_stack_is_refused(tmp_path: Path, stack: str) -> None:
    described = launch.describe("310P3", 1, 4, None, stack, "none")
    with pytest.raises(ValueError, match=r"give --stack 0\.23\.0\.post1"):
        launch.run(described, [str(tmp_path / ".venv-ascend-0.23.0.post1" / "bin" / "python"), "-V"])


def test_the_stack_of_the_program_is_checked_wherever_it_is(tmp_path: Path) -> None:
    venv = tmp_path / "elsewhere" / ".venv-ascend-0.18.0"
    (venv / "packages" / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    (venv / "packages" / "published.json").write_text('{"vllm": {"vllm/a.py": "sha256=x"}}')
    (venv / "bin").mkdir()
    program = venv / "bin" / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    described = launch.describe("310P3", 1, 4, None, "0.18.0", "none")
    with pytest.raises(stacks.StackError, match=r"missing: vllm/a\.py"):
        launch.run(described, [str(program)], folder=tmp_path)


def test_changed_stack_is_exit_1(tmp_path: Path) -> None:
    site = tmp_path / ".venv-ascend-0.18.0" / "packages" / "lib" / "python3.11" / "site-packages" / "vllm"
    site.mkdir(parents=True)
    published = {"vllm": {"vllm/a.py": stacks._digest(b"")}}
    (site.parents[3] / "published.json").write_text(json.dumps(published))
    described = launch.describe("310P3", 1, 4, None, "0.18.0", "none")
    with pytest.raises(stacks.StackError, match=r"missing: vllm/a\.py"):
        launch.run(described, ["true"], folder=tmp_path)
    (site / "a.py").write_bytes(b"")
    assert launch.run(described, ["true"], folder=tmp_path) == 0


def test_missing_compiler_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", "/no/such/compiler")
    monkeypatch.setenv("NPU_EMULATOR_CACHE", str(tmp_path))
    with pytest.raises(NpuError, match=r"needs a C\+\+ compiler"):
        build.load.__wrapped__()
    done = emulate(command=[sys.executable, "-c", "import torch"])
    assert done.returncode == 2
    assert "needs a C++ compiler; '/no/such/compiler'" in done.stderr.splitlines()[-1]


def test_a_builder_that_was_killed_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its lock ends with it, and what it left half made is not taken for the library."""
    monkeypatch.setenv("NPU_EMULATOR_CACHE", str(tmp_path))
    code = f"import time; from npu_emulator import stacks\nwith stacks.locked('device-{build.key()}'):\n"
    code += " print('held', flush=True)\n time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stdout.readline() == "held\n"
        child.kill()
    folder = tmp_path / f"device-{build.key()}"
    folder.mkdir()
    (folder / "lock").touch()
    built = []

    def finished(name: str, library: Path) -> None:
        built.append(library)
        raise NpuError("as if built", 0)

    monkeypatch.setattr(build, "_build", finished)
    with pytest.raises(NpuError, match="as if built"):
        build.load.__wrapped__()
    assert built == [folder / "npu_emulator_device.so"]


def test_nothing_is_emulated_without_the_variable() -> None:
    code = "import sys, torch; print(torch._C._get_privateuse1_backend_name(), 'torch_npu' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert out == ["privateuseone", "False"]


def test_torch_npu_may_be_imported_before_torch() -> None:
    done = emulate(command=[sys.executable, "-c", "import torch_npu, torch; print(torch.zeros(1).npu().device)"])
    assert done.stdout == "npu:0\n", done.stderr[-2000:]
