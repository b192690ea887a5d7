"""Checkpoints and running servers that several test files share; a server starts once a session, when first needed."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ascend_vl.language import speak

# A test run started in the background ignores Ctrl-C, and so would the commands it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

if TYPE_CHECKING:
    from ascend_vl.serve.process import RunningServer

ORACLE = Path(__file__).parent / "data" / "oracle"
API_KEY = "test-key"


def make_tiny(out: Path, *options: str) -> Path:
    """The oracle's tiny random checkpoint; deterministic."""
    script = str(ORACLE / "make_tiny_checkpoint.py")
    subprocess.run([sys.executable, script, "--out", str(out), *options], check=True, capture_output=True)
    return out


@pytest.fixture(scope="session")
def tiny_hidream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random HiDream-O1 checkpoint with its pixel head, 85 MB. Read only."""
    return make_tiny(tmp_path_factory.mktemp("tiny") / "hidream")


@pytest.fixture(scope="session")
def tiny_qwen3_vl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same checkpoint without the head: plain Qwen3-VL, 84 MB. Read only."""
    return make_tiny(tmp_path_factory.mktemp("tiny") / "qwen3-vl", "--without-head")


@pytest.fixture(scope="session")
def engine_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Logs of servers go to a temporary place, and the capture route is there."""
    before = dict(os.environ)
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
    os.environ["ASCEND_VL_CAPTURE"] = "1"
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def tiny_server(tiny_hidream: Path, engine_environment: None) -> Iterator["RunningServer"]:
    """`serve` on the tiny HiDream-O1: float32, drawing on, API key API_KEY, capture route on."""
    from ascend_vl.plan import Wishes
    from ascend_vl.serve.process import running

    with running(tiny_hidream, Wishes(api_key=API_KEY, max_model_len=4096)) as server:
        yield server


@pytest.fixture(autouse=True)
def spoken() -> Iterator[None]:
    """No test's language is the next one's."""
    yield
    speak(None)
