import json
import subprocess
import sys


def emulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ascend_vl", "emulate", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_runs_on_the_machine_and_its_exit_code_is_kept() -> None:
    code = "import os, sys; print(os.environ['NPU_EMULATOR']); sys.exit(3)"
    done = emulate("--chip", "910B3", "--chips", "2", "--", sys.executable, "-c", code)
    assert done.returncode == 3
    assert json.loads(done.stdout) | {"chip": "910B3", "chips": 2} == json.loads(done.stdout)


def test_options_after_the_command_are_the_command_s() -> None:
    done = emulate("--", sys.executable, "-c", "import sys; print(sys.argv[1:])", "--chip", "x")
    assert done.stdout.strip() == "['--chip', 'x']"


def test_the_machine_and_its_scale_are_said_in_the_language_asked_for() -> None:
    english = emulate("--memory", "4.32", "--", "true")
    assert english.stderr.startswith("emulated: 1 x 310P3 with 4.32 GiB each, 1:10 of a real chip")
    assert "1:10" in emulate("--lang", "zh", "--memory", "4.32", "--", "true").stderr.partition("模拟")[2]


def test_json_is_alone_on_stdout_and_says_emulated() -> None:
    done = emulate("--json", "--faults", "index-put", "--", sys.executable, "-c", "print('noise')")
    answer = json.loads(done.stdout)
    assert answer["emulated"] is True and answer["exit_code"] == 0 and answer["machine"]["faults"] == ["index-put"]
    assert "noise" in done.stderr


def test_what_cannot_run_is_named() -> None:
    for arguments in (("--faults", "nonsense", "--", "true"), ("--chip", "910A", "--", "true"), ("--", "/no/such")):
        done = emulate("--json", *arguments)
        assert done.returncode == 2
        assert json.loads(done.stdout)["error"]["code"] == "emulator-cannot-run"
    assert json.loads(emulate("--json").stdout)["error"]["code"] == "usage"
