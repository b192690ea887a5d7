"""doctor --probe on an emulated chip with the unmodified vllm-ascend beside it (emulated: nothing about hardware)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from npu_emulator import stacks

pytestmark = pytest.mark.emulated

ROOT = Path(__file__).parents[2]
RELEASE = "0.23.0.post1"


def test_planted_faults_switch_their_adaptations_on_and_no_other(tmp_path: Path) -> None:
    python = stacks.make(RELEASE, ROOT, ROOT) / "bin" / "python"
    emulator = [sys.executable, "-m", "npu_emulator", "--chip", "310P3", "--stack", RELEASE]
    done = subprocess.run(
        [
            *emulator,
            "--faults",
            "index-put,no-bf16",
            "--",
            str(python),
            "-m",
            "ascend_vl",
            "doctor",
            "--probe",
            "--json",
        ],
        env=os.environ | {"ASCEND_VL_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
        cwd=ROOT,
    )
    found = json.loads(done.stdout)
    states = {one["id"]: one["state"] for one in found["adaptations"]}
    assert {name for name, state in states.items() if state == "active"} == {"embedding-merge", "float16"}
    assert "unprobed" not in states.values(), found["adaptations"]
    assert states["rotary-dtype"] == states["vision-operator"] == states["vision-exact-kernel"] == "probed-fine"
    assert found["emulated"] is True
    # What doctor asked is kept, so that serve need not ask again.
    assert len(list((tmp_path / "probes").glob("*.json"))) >= 5
    assert done.returncode == (0 if found["health"] == "healthy" else 1)
