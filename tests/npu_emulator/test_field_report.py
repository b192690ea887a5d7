"""`ascend-vl field` on emulated chips, with and without faults (emulated: nothing about hardware).

With more minutes it asks everything; here the time ends before.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ascend_vl.probes import field
from npu_emulator import stacks

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.emulated


def asked(out: Path, faults: str, minutes: str, cache: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """Exit code and report of one run on an emulated 310P3 with vllm-ascend 0.23.0.post1."""
    stacks.make("0.23.0.post1", ROOT, ROOT)
    emulate = ["emulate", "--chip", "310P3", "--stack", "0.23.0.post1", "--faults", faults, "--"]
    command = [sys.executable, "-m", "ascend_vl", *emulate, "ascend-vl", "field", "-o", str(out)]
    done = subprocess.run(
        [*command, "--minutes", minutes, *options],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "ASCEND_VL_CACHE": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )
    report: dict[str, Any] = json.loads(out.read_text())
    assert report["emulated"] is True
    assert "emulated" in done.stdout, done.stdout + done.stderr
    return done.returncode, report


def test_faults_are_found_in_the_time_given_and_the_rest_says_so(tmp_path: Path) -> None:
    out = tmp_path / "field.json"
    _, begun = asked(out, "default", "0.1", tmp_path / "cache")
    code, report = asked(out, "default", "0.5", tmp_path / "cache")
    labels = [f"{name}@{place}" for name, place in field.questions() if name != "hidream-text"]
    assert list(report["answers"]) == labels
    answered = {label: one["fault"] for label, one in report["answers"].items() if one["fault"] is not None}
    assert code == 1
    assert answered["index-put@72"] is True and answered["bfloat16@72"] is True
    for label, one in report["answers"].items():
        assert label in answered or "time was over" in one["reason"]["en"] or "no answer within" in one["reason"]["en"]
    assert str(Path.home()) not in out.read_text()
    before = {label: one for label, one in begun["answers"].items() if one["fault"] is not None}
    assert {label: report["answers"][label] for label in before} == before
    assert len(before) < len(answered)


def test_without_faults_none_is_found(tmp_path: Path) -> None:
    _, report = asked(tmp_path / "field.json", "none", "0.5", tmp_path / "cache")
    verdicts = {label: one["fault"] for label, one in report["answers"].items()}
    # 310P has no lengths in prompt flash attention, by design.
    assert {label for label, fault in verdicts.items() if fault} <= {"prompt-flash-lengths@72"}
    assert verdicts["index-put@72"] is False and verdicts["bfloat16@72"] is False
