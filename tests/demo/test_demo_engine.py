"""The demo as a user runs it: the bundled model really sees, draws and is verified."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ascend_vl.demo import flow
from ascend_vl.images import load_image
from ascend_vl.verify.cases import read_cases
from ascend_vl.verify.fields import declared, read_fields

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """`ascend-vl demo --json`, run once."""
    folder = tmp_path_factory.mktemp("demo")
    run = subprocess.run(
        [sys.executable, "-m", "ascend_vl", "demo", "--json", "--out", str(folder / "out")],
        env={**os.environ, "XDG_STATE_HOME": str(folder)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    value: dict[str, Any] = json.loads(run.stdout)
    return value


def test_it_answers_in_both_languages(shown: dict[str, Any]) -> None:
    answers = {answer["id"]: answer["answer"] for answer in shown["answers"]}
    assert set(answers) == set(flow.QUESTIONS)
    cases = {case.id: case for case in read_cases(flow.PICTURES / "cases.jsonl")}
    wanted = {name: declared(cases[name].key_fields) for name in answers}
    right = [name for name, text in answers.items() if len(read_fields(text, wanted[name])) == len(wanted[name])]
    assert len(right) >= len(answers) - 1


def test_it_draws(shown: dict[str, Any]) -> None:
    picture = load_image(Path(shown["drawn"]))
    left, right = (picture.getpixel((picture.width * part // 4, picture.height // 2)) for part in (1, 3))
    assert isinstance(left, tuple) and isinstance(right, tuple)
    assert left[0] > 128 > left[2]
    assert right[2] > 128 > right[0]


def test_it_verifies_and_reports(shown: dict[str, Any]) -> None:
    assert shown["verify"]["verdict"] == "pass"
    assert [stage["status"] for stage in shown["verify"]["stages"]] == ["passed"] * 4
    assert Path(shown["report"]).is_file()
