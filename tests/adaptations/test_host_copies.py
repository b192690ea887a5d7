"""Copies from the device in a forward of the vision tower, counted on the emulated device."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.emulated


def test_lengths_cost_one_copy_a_forward_where_stock_takes_one_a_layer():
    script = Path(__file__).parent / "count_copies.py"
    command = [sys.executable, "-m", "npu_emulator", "--chip", "310P3", "--", sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("COPIES "))
    found = json.loads(line.removeprefix("COPIES "))
    assert found["stock"] == found["depth"]
    assert found["ours"] == 1
    assert found["equal"]
