import json
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import pytest
from PIL import Image

from ascend_vl.cli.app import run_command
from ascend_vl.errors import AscendVLError


def draw(*args: Any) -> int:
    return run_command("draw", [str(arg) for arg in args])


def test_the_reference_draws_from_a_directory_and_traces(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = oracle.meta("t2i")
    out, trace = tmp_path / "new" / "o.png", tmp_path / "t.npz"
    options = ["--recipe", "full", "--size", "96x64", "--steps", 5, "--seed", 7, "--trace", trace, "--json"]
    assert draw(f"transformers:{tiny}", asked["prompt"], "-o", out, *options) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["size"] == "96x64" and told["seed"] == 7 and told["usage"]["output_tokens"] == 6
    with np.load(trace) as arrays:
        oracle.check({name: arrays[name] for name in arrays.files}, "t2i")
    with Image.open(out) as made:
        assert made.size == (96, 64) and "AIGC" in made.info


def test_references_and_a_layout_file(tiny: Path, tmp_path: Path) -> None:
    boxes = tmp_path / "boxes.json"
    boxes.write_text("[[0.1, 0.6, 0.1, 0.9]]")
    options = ["--image", oracle.DATA / "ref0.png", "--layout", boxes, "--size", "128x128", "--steps", 1, "--seed", 1]
    assert draw(f"transformers:{tiny}", "make it blue", "-o", tmp_path / "o.webp", *options) == 0
    with Image.open(tmp_path / "o.webp") as made:
        assert made.format == "WEBP" and made.size == (128, 128)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["-o", "o.bmp"], "draw-format"),
        (["-o", "o.png", "--size", "100x100"], "drawing-size"),
        (["-o", "o.png", "--image", "nowhere.png"], "image-not-found"),
        (["-o", "o.png", "--dtype", "int8"], "dtype-unknown"),
        (["-o", "o.png", "--layout", "nowhere.json"], "drawing-layout"),
        (["-o", "/proc/nowhere/o.png", "--size", "32x32", "--steps", "1"], "draw-unwritable"),
    ],
)
def test_mistakes_are_named_and_end_with_two(
    tiny: Path, options: list[str], code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert draw(f"transformers:{tiny}", "a cat", "--json", *options) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == code


def test_a_server_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert draw("http://127.0.0.1:9", "a cat", "-o", "o.png", "--json") == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "draw-unreachable"


def test_what_the_server_said_is_passed_on() -> None:
    from ascend_vl.drawing.client import server_error

    body = json.dumps({"error": {"message": "no", "code": "drawing-busy"}})
    assert server_error(429, body).code == "drawing-busy"
    assert server_error(404, "Not Found").code == "draw-no-route"
    assert server_error(502, "<html>").code == "draw-refused"
    assert isinstance(server_error(500, "{}"), AscendVLError)
