"""What every command does alike, seen from outside."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ascend_vl.cli import output
from ascend_vl.cli.serve import without_key
from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text

HOSTILE = "a\\[/b] [red]x[/red] \n second"


def command(*arguments: str, **options: object) -> "subprocess.CompletedProcess[str]":
    words = [sys.executable, "-m", "ascend_vl", *arguments]
    return subprocess.run(words, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload, no-any-return]


def test_markup_in_an_error_stays_text_and_each_part_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    text = Text(HOSTILE, HOSTILE)
    output.show_error(AscendVLError("x", text, text, text), as_json=False)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert all("a\\[/b] [red]x[/red]   second" in line for line in lines)


def test_a_file_name_like_markup() -> None:
    done = command("inspect", r"a\[/b]")
    assert done.returncode == 2 and "Traceback" not in done.stderr


def test_what_nobody_foresaw_is_an_error_object(capsys: pytest.CaptureFixture[str]) -> None:
    def body() -> int:
        raise ZeroDivisionError("by zero")

    with pytest.raises(output.typer.Exit) as ended:
        output.run(body, as_json=True)
    assert ended.value.exit_code == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "internal-error"


def test_not_a_number_is_no_json() -> None:
    with pytest.raises(ValueError):
        output.print_json({"value": float("nan")})


def test_a_reader_that_goes_away_ends_it_silently(tmp_path: Path) -> None:
    errors = tmp_path / "stderr"
    line = f"{sys.executable} -m ascend_vl --help 2>{errors} | true"
    subprocess.run(["bash", "-c", line], check=True)
    assert errors.read_text() == ""


def test_a_key_after_the_dashes_is_not_shown() -> None:
    assert without_key(["vllm", "--api-key", "s", "--api-key=t", "--port", "1"]) == [
        "vllm", "--api-key", "…", "--api-key=…", "--port", "1",
    ]  # fmt: skip
