"""`ascend-vl serve` from the outside, over the fake server of tests/serve."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ascend_vl.serve import process

SERVE_TESTS = Path(__file__).parent.parent / "serve"
# The command itself, with only vLLM's process exchanged.
SCRIPT = """
import sys
sys.path[:0] = [{tests!r}]
from ascend_vl.serve import command_options, process
process.SECONDS_FOR_CHILDREN = 0.2
def argv(command):
    print("COMMAND " + " ".join(command), file=sys.stderr, flush=True)
    return [sys.executable, {fake!r}, str(command_options.address(command)[1]), *{options!r}]
process.argv = argv
from ascend_vl.cli import app
sys.argv = ["ascend-vl", "serve", *sys.argv[1:]]
app.main()
"""


@contextlib.contextmanager
def start(tiny: Path, state: Path, *args: str, options: tuple[str, ...] = ()) -> Iterator["subprocess.Popen[str]"]:
    """The command, running; ended where a test that failed left it."""
    script = SCRIPT.format(tests=str(SERVE_TESTS), fake=str(SERVE_TESTS / "fake_server.py"), options=list(options))
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tiny), "--port", str(process.free_port()), *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "XDG_STATE_HOME": str(state), "ASCEND_VL_LANG": "en", "PYTHONUNBUFFERED": ""},
    ) as command:
        try:
            yield command
        finally:
            if command.poll() is None:
                command.terminate()


def read_json(stream: "subprocess.Popen[str]") -> dict[str, object]:
    """The one JSON document that a still running command has printed."""
    assert stream.stdout is not None
    text = ""
    for line in stream.stdout:
        text += line
        if line.rstrip() == "}":
            break
    value: dict[str, object] = json.loads(text)
    return value


def test_serve_says_when_it_is_ready_and_ends_with_ctrl_c(tiny_hidream: Path, tmp_path: Path) -> None:
    given = ("--json", "--served-model-name", "tiny", "--api-key", "secret-1", "--max-num-batched-tokens", "4096")
    with start(tiny_hidream, tmp_path, *given, "--", "--seed", "3") as command:
        ready = read_json(command)
        group = int(str(ready["pid"]))
        assert process.group_alive(group)
        command.send_signal(signal.SIGINT)
        _, told = command.communicate(timeout=120)
    assert command.returncode == 130
    assert not process.group_alive(group)
    assert told.rstrip().endswith("stopped")
    assert (ready["schema"], ready["model"]) == (1, "tiny")
    line = next(line for line in told.splitlines() if line.startswith("COMMAND"))
    assert "--max-num-batched-tokens 4096" in line and "--seed 3" in line
    assert "no NPU found: serving on the CPU" in told
    assert "secret-1" not in told + json.dumps(ready)


def test_serve_explains_what_it_replaces(tiny_hidream: Path, tmp_path: Path) -> None:
    with start(tiny_hidream, tmp_path, "--explain") as command:
        assert command.stdout is not None
        line = next(line for line in command.stdout if line.startswith("api server"))
        command.send_signal(signal.SIGTERM)
        command.communicate(timeout=120)
    assert line.split() == ["api", "server", "vllm.x.build_app", "/vllm/x.py:1", "->", "/ascend_vl/y.py:2"]


def test_serve_tells_why_vllm_ended(tiny_hidream: Path, tmp_path: Path) -> None:
    with start(tiny_hidream, tmp_path, "--json", options=("--die",)) as command:
        out, told = command.communicate(timeout=120)
    assert command.returncode == 2
    error = json.loads(out)["error"]
    assert error["code"] == "server-failed"
    assert "no module or parameter named 'model'" in error["why"]
    assert "Traceback" not in told


@pytest.mark.parametrize("given", [("--drawing", "maybe"), ("--dtype", "int4"), ("--port", "x")])
def test_a_wrong_option_is_a_usage_error(tiny_hidream: Path, tmp_path: Path, given: tuple[str, ...]) -> None:
    with start(tiny_hidream, tmp_path, *given) as command:
        _, told = command.communicate(timeout=120)
    assert command.returncode == 2
    assert given[0].removeprefix("--") in told and "Traceback" not in told
