"""The planner's sum against the emulator's counter, with vllm-ascend as shipped (emulated: nothing about hardware)."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests/npu_emulator"))

import tiny_checkpoint  # noqa: E402

from ascend_vl.checkpoint.shapes import text_shape, vision_shape  # noqa: E402
from ascend_vl.plan.activations import rotary_bytes, tower_bytes  # noqa: E402
from ascend_vl.plan.memory import Choice, nz_copies  # noqa: E402
from ascend_vl.plan.model import Model  # noqa: E402
from ascend_vl.rules import table  # noqa: E402
from npu_emulator import launch, stacks  # noqa: E402

pytestmark = pytest.mark.emulated

RELEASE = "0.18.0"
# Half the width of the published tower, with its head width of 72 and its proportions; text heads of 128.
VISION = {"hidden_size": 576, "num_heads": 8, "depth": 3, "intermediate_size": 2152, "out_hidden_size": 512}
TEXT = {
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 128,
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny checkpoint's files with a config of real proportions; weights are made up by vLLM."""
    folder = tiny_checkpoint.make(tmp_path_factory.mktemp("memory") / "tiny", peak=False)
    config = json.loads((folder / "config.json").read_text())
    config["vision_config"] |= VISION
    config["text_config"] |= TEXT
    config["text_config"]["rope_scaling"]["mrope_section"] = [24, 20, 20]
    (folder / "config.json").write_text(json.dumps(config))
    settings = json.loads((folder / "preprocessor_config.json").read_text())
    settings["size"] = {"longest_edge": 256 * 256, "shortest_edge": 32 * 32}
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture(scope="module")
def model(checkpoint: Path) -> Model:
    config = json.loads((checkpoint / "config.json").read_text())
    return Model("tiny", str(checkpoint), "qwen3-vl", False, text_shape(config), vision_shape(config), 0, "float16")


@pytest.fixture(scope="module")
def counted(checkpoint: Path) -> dict[str, Any]:
    machine = launch.describe("310P3", 1, 4, None, RELEASE, "none")
    python = stacks.make(RELEASE, ROOT, ROOT) / "bin" / "python"
    done = subprocess.run(
        [str(python), str(HERE / "emulated_memory.py"), str(checkpoint)],
        env=launch.environment(machine),
        capture_output=True,
        text=True,
        check=False,
        timeout=1500,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("MEMORY "))
    found: dict[str, Any] = json.loads(line.removeprefix("MEMORY "))
    return found


def test_weights_are_exact(model: Model, counted: dict[str, Any]) -> None:
    assert model.weight_bytes("float16", 1, False) == counted["weights"]


def test_the_tower_is_an_upper_estimate_within_a_fifth(model: Model, counted: dict[str, Any]) -> None:
    for tokens, peak in counted["tower"]:
        estimate = tower_bytes(model, tokens, "float16", 1, on_npu=True)
        assert peak <= estimate <= 1.2 * peak, (tokens, estimate, peak)


def test_what_is_held_beside_weights_and_kv_cache_within_a_fifth(model: Model, counted: dict[str, Any]) -> None:
    kv = counted["kv_tokens"] * model.kv_token_bytes("float16", 1)
    held = counted["allocated"] - counted["weights"] - kv
    runtime = table().setting("memory-runtime") * 2**30
    choice = Choice(2**32, "310P", RELEASE, "float16", 1, 256, 0.5, False, 2)
    estimate = runtime + rotary_bytes(model, "float16") + nz_copies(model, choice)
    assert held <= estimate <= 1.2 * held, (estimate, held)
