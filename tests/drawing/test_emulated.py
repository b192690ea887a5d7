"""Drawing through the unmodified vllm-ascend on an emulated NPU.

Emulated: it shows that the code runs and computes what it should under the stated contracts of the operators, and
nothing about hardware.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import pytest

pytestmark = pytest.mark.emulated

ROOT = Path(__file__).parents[2]
# x_pred and latents: largest difference relative to the largest value; picture: of 255. float16 adds up over the steps.
BOUNDS = {"float32": (1e-5, 1e-4, 1), "float16": (0.02, 0.02, 6)}
RUNS = [
    ("0.18.0", "910B3", "float32", "fused"),
    ("0.23.0.post1", "910B3", "float32", "fused"),
    ("0.18.0", "310P3", "float16", "prompt"),
    ("0.23.0.post1", "310P3", "float16", "prompt"),
]


def checkpoint(tiny: Path, folder: Path) -> Path:
    """The stored values' checkpoint, its tokenizer named so that older Transformers find the class."""
    for file in tiny.iterdir():
        (folder / file.name).symlink_to(file)
    settings = json.loads((tiny / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").unlink()
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"tokenizer_class": "Qwen2TokenizerFast"}))
    return folder


@pytest.mark.parametrize(("stack", "chip", "dtype", "attention"), RUNS)
def test_the_emulated_chip_draws_what_the_reference_drew(
    tiny: Path, tmp_path_factory: pytest.TempPathFactory, stack: str, chip: str, dtype: str, attention: str
) -> None:
    model, out = checkpoint(tiny, tmp_path_factory.mktemp("model")), tmp_path_factory.mktemp("emulated")
    python = ROOT / f".venv-ascend-{stack}" / "bin" / "python"
    command = [sys.executable, "-m", "npu_emulator", "--chip", chip, "--stack", stack, "--memory", "8", "--"]
    script = [python, Path(__file__).parent / "emulated_draw.py", model, out, "--dtype", dtype]
    done = subprocess.run([*map(str, command + script)], capture_output=True, text=True, timeout=1500, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    opened = json.loads((out / "open.json").read_text())
    assert (opened["device"], opened["attention"], opened["dtype"]) == ("npu", attention, dtype)
    assert opened["released"] > 0
    for case in oracle.CASES:
        with np.load(out / f"{case}.npz") as arrays:
            oracle.check({name: arrays[name] for name in arrays.files}, case, *BOUNDS[dtype])
    assert json.loads((out / "left.json").read_text())["sessions"] == []
    queue: dict[str, Any] = json.loads((out / "queue.json").read_text())
    assert set(queue["waited"]) == {0}
    # The mutation: without the wait, slices pile up on the device.
    assert max(queue["unwaited"]) > 0
