"""`ascend-vl ask` over the fake server of tests/serve; the real one is asked in test_server_engine.py."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

from ascend_vl.cli import ask
from ascend_vl.serve import command_options, process

FAKE = Path(__file__).parent.parent / "serve" / "fake_server.py"

app = typer.Typer()
app.command()(ask.command)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """Commands that were started, each as the fake server."""
    commands: list[list[str]] = []

    def argv(command: list[str]) -> list[str]:
        commands.append(command)
        return [sys.executable, str(FAKE), str(command_options.address(command)[1])]

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(process, "argv", argv)
    monkeypatch.setattr(process, "SECONDS_FOR_CHILDREN", 0.2)
    return commands


def invoke(*given: str) -> tuple[int, Any]:
    result = CliRunner().invoke(app, [*given, "--json"])
    return result.exit_code, json.loads(result.stdout)


def test_a_directory_is_served_asked_and_stopped(tiny_hidream: Path, tmp_path: Path, started: list[list[str]]) -> None:
    picture = tmp_path / "p.png"
    Image.new("RGB", (8, 8)).save(picture)
    code, said = invoke(str(tiny_hidream), "what?", "--image", str(picture), "--image", str(picture))
    assert code == 0
    assert said["text"] == "image_url image_url text 0"
    assert (said["schema"], said["finish_reason"]) == (1, "stop")
    assert len(started) == 1 and started[0][2] == str(tiny_hidream)


def test_a_bad_picture_is_refused_before_anything_starts(
    tiny_hidream: Path, tmp_path: Path, started: list[list[str]]
) -> None:
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"\x89PNG\r\n\x1a\n")
    code, said = invoke(str(tiny_hidream), "what?", "--image", str(broken))
    assert (code, said["error"]["code"]) == (2, "image-damaged")
    assert started == []


@pytest.mark.parametrize(
    ("target", "code"), [("nowhere", "target-unknown"), ("http://127.0.0.1:9", "server-unreachable")]
)
def test_a_target_that_is_not_there_is_named(target: str, code: str, started: list[list[str]]) -> None:
    exit_code, said = invoke(target, "what?")
    assert (exit_code, said["error"]["code"]) == (2, code)
    assert target in said["error"]["what"]
