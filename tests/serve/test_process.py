import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ascend_vl.errors import AscendVLError
from ascend_vl.models import names
from ascend_vl.serve import process
from ascend_vl.serve.startup_log import Progress

FAKE = Path(__file__).parent / "fake_server.py"


def fake_plan(port: int, environment: dict[str, str] | None = None) -> Any:
    overrides = f'{{"architectures": ["{names.QWEN3_VL}"]}}'
    command = ["vllm", "serve", "tiny", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--hf-overrides", overrides, "--worker-extension-cls", names.WORKER_EXTENSION]
    return SimpleNamespace(command=command, environment=environment or {}, secrets={}, adaptations=["float16"])


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """`fake(*options)` -> a plan that starts the fake server."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(process, "SECONDS_TO_STOP", 2.0)
    monkeypatch.setattr(process, "SECONDS_FOR_CHILDREN", 0.2)

    def plan(*options: str) -> Any:
        port = process.free_port()
        monkeypatch.setattr(process, "argv", lambda command: [sys.executable, str(FAKE), str(port), *options])
        return fake_plan(port)

    return plan


def test_a_start_is_followed_stage_by_stage_and_leaves_nothing(fake: Any) -> None:
    seen: list[tuple[str, int, int]] = []

    def on_stage(progress: Progress) -> None:
        seen.append((progress.stage, progress.shard, progress.shards))

    with process.run_plan(fake(), on_stage=on_stage) as server:
        assert process.group_alive(server.process.pid)
        assert server.status is not None
        assert server.model == "tiny"
        assert server.stages["load_seconds"] == 0.43
        assert server.stages["warmup_seconds"] == 3.30
        assert server.stages["kv_tokens"] == 524288
        assert "Loading weights took" in server.log_path.read_text()
    assert not process.group_alive(server.process.pid)
    stages = [stage for stage, _, _ in seen]
    assert sorted(set(stages), key=stages.index) == ["start", "weights", "warmup", "ready"]
    assert ("weights", 1, 2) in seen


def test_a_server_that_ignores_sigterm_is_ended(fake: Any) -> None:
    with process.run_plan(fake("--stubborn")) as server:
        pass
    assert not process.group_alive(server.process.pid)


def test_a_server_that_dies_is_named_with_its_cause(fake: Any) -> None:
    with pytest.raises(AscendVLError) as caught, process.run_plan(fake("--die")):
        pass
    assert caught.value.code == "server-failed"
    assert "There is no module or parameter named 'model'" in caught.value.why.en


@pytest.mark.parametrize(
    ("option", "code"),
    [
        ("--silent-plugin", "plugin-inactive"),
        ("--no-token", "no-answer"),
        ("--unprobed-worker", "adaptation-missing"),
        ("--failed-adaptation", "adaptation-missing"),
    ],
)
def test_not_ready_without_a_token_and_everything_of_ours_everywhere(fake: Any, option: str, code: str) -> None:
    with pytest.raises(AscendVLError) as caught, process.run_plan(fake(option)):
        pass
    assert caught.value.code == code


def test_a_taken_port_is_refused_before_anything_starts(fake: Any) -> None:
    plan = fake()
    port = process.command_options.address(plan.command)[1]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        with pytest.raises(AscendVLError) as caught, process.run_plan(plan):
            pass
    assert caught.value.code == "port-in-use"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_leave_no_process_behind(number: signal.Signals, tmp_path: Path) -> None:
    script = f"""
import sys, time
sys.path[:0] = [{str(Path(__file__).parent)!r}]
import test_process as t
from ascend_vl.serve import process
port = process.free_port()
process.SECONDS_FOR_CHILDREN = 0.2
process.argv = lambda command: [sys.executable, str(t.FAKE), str(port)]
with process.run_plan(t.fake_plan(port)) as server:
    print(server.process.pid, flush=True)
    time.sleep(60)
"""
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    ) as parent:
        assert parent.stdout is not None
        group = int(parent.stdout.readline())
        assert process.group_alive(group)
        parent.send_signal(number)
        parent.wait(60)
    assert not process.group_alive(group)


def test_an_interrupt_during_the_start_leaves_no_process_behind(fake: Any) -> None:
    plan, began = fake(), []

    def on_stage(progress: Progress) -> None:
        if progress.stage == "weights":
            began.append(time.monotonic())
            raise KeyboardInterrupt

    started: list[Any] = []
    real = subprocess.Popen

    class Recorded(real):  # type: ignore[type-arg, valid-type, misc]
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            started.append(self)

    process.subprocess.Popen = Recorded  # type: ignore[misc]
    try:
        with pytest.raises(KeyboardInterrupt), process.run_plan(plan, on_stage=on_stage):
            pass
    finally:
        process.subprocess.Popen = real  # type: ignore[misc]
    assert began and started
    assert not process.group_alive(started[0].pid)


def test_the_users_variables_stand_but_the_plugin_list_is_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("VLLM_PLUGINS", "ascend")
    plan = fake_plan(1, {"OMP_NUM_THREADS": "1", "VLLM_PLUGINS": "ascend,ascend_vl"})
    full = process.environment(plan)
    assert (full["OMP_NUM_THREADS"], full["VLLM_PLUGINS"]) == ("3", "ascend,ascend_vl")


def test_logs_do_not_pile_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for _ in range(process.LOGS_KEPT + 5):
        process.new_log()
    assert len(list(process.log_directory().iterdir())) == process.LOGS_KEPT + 1


@pytest.mark.parametrize("port", ["99999", "0", "-1", "abc", "٣"])
def test_a_port_that_is_none_is_refused_in_words(port: str) -> None:
    with pytest.raises(AscendVLError) as refused:
        process.command_options.address(["vllm", "serve", "m", "--port", port])
    assert refused.value.code == "port-invalid"


@pytest.mark.parametrize("host", ["192.0.2.1", "999.1.1.1"])
def test_an_address_of_another_machine_is_not_called_a_taken_port(host: str) -> None:
    with pytest.raises(AscendVLError) as refused:
        process._require_free(host, process.free_port())
    assert refused.value.code == "host-invalid"


def test_a_log_directory_that_cannot_be_written_is_no_obstacle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    process.log_directory().parent.mkdir(parents=True)
    # A file in its place: root may write wherever permissions forbid it.
    process.log_directory().write_text("")
    assert process.new_log().is_file()
