"""The planner's sum against the emulator's counter, with vllm-ascend as shipped (emulated: nothing about hardware)."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ascend_vl.checkpoint.shapes import text_shape, vision_shape
from ascend_vl.drawing import budget
from ascend_vl.plan.activations import drawing_bytes, rotary_bytes, tower_bytes
from ascend_vl.plan.memory import Choice, nz_copies
from ascend_vl.plan.model import Model
from ascend_vl.rules import table
from npu_emulator import launch, stacks

pytestmark = pytest.mark.emulated

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RELEASE = "0.18.0"
# Half the width of the published tower, its head width of 72 and proportions; text heads of 128, four to a key.
VISION = {"hidden_size": 576, "num_heads": 8, "depth": 3, "intermediate_size": 2152, "out_hidden_size": 512}
TEXT = {
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 128,
}


@pytest.fixture(scope="module")
def checkpoint(tiny_hidream: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny checkpoint's files with a config of real proportions; weights are made up by vLLM."""
    folder = tmp_path_factory.mktemp("memory")
    for file in tiny_hidream.iterdir():
        if file.suffix != ".safetensors":
            (folder / file.name).write_bytes(file.read_bytes())
    change(folder / "tokenizer_config.json", tokenizer_class="Qwen2TokenizerFast")
    change(folder / "preprocessor_config.json", size={"longest_edge": 256 * 256, "shortest_edge": 32 * 32})
    config = json.loads((folder / "config.json").read_text())
    text = config["text_config"] | TEXT
    text["rope_scaling"]["mrope_section"] = [24, 20, 20]
    change(folder / "config.json", text_config=text, vision_config=config["vision_config"] | VISION)
    return folder


def change(file: Path, **values: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


@pytest.fixture(scope="module")
def model(checkpoint: Path) -> Model:
    config = json.loads((checkpoint / "config.json").read_text())
    return Model("tiny", str(checkpoint), "hidream-o1", True, text_shape(config), vision_shape(config), 0, "float16")


@pytest.fixture(scope="module")
def counted(checkpoint: Path) -> dict[str, Any]:
    machine = launch.describe("310P3", 1, 8, None, RELEASE, "none")
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
    assert model.weight_bytes("float16", 1, True) == counted["weights"]


def test_the_workspace_for_drawing_is_exact(model: Model, counted: dict[str, Any]) -> None:
    assert drawing_bytes(model, "float16", 1) == counted["workspace"]


def test_the_tower_is_an_upper_estimate_within_a_fifth(model: Model, counted: dict[str, Any]) -> None:
    ratios = [tower_bytes(model, tokens, "float16", 1, on_npu=True) / peak for tokens, peak in counted["tower"]]
    assert len(ratios) == 3
    assert all(1 <= ratio <= 1.2 for ratio in ratios), (ratios, counted["tower"])


def test_a_drawing_is_an_upper_estimate_within_a_fifth(checkpoint: Path, counted: dict[str, Any]) -> None:
    shape = budget.Shape.of(json.loads((checkpoint / "config.json").read_text()), 2)
    # The counter knows no fragmentation, so the allowance for it is left out.
    estimates = [budget.request_bytes(shape, *sizes) / budget.FRAGMENTATION for *sizes, _ in counted["drawing"]]
    ratios = [estimate / sizes[-1] for estimate, sizes in zip(estimates, counted["drawing"], strict=True)]
    assert len(ratios) == 3
    assert all(1 <= ratio <= 1.2 for ratio in ratios), (ratios, counted["drawing"])


def test_what_is_held_beside_weights_and_kv_cache_within_a_fifth(model: Model, counted: dict[str, Any]) -> None:
    kv = counted["kv_tokens"] * model.kv_token_bytes("float16", 1)
    held = counted["allocated"] - counted["weights"] - kv
    runtime = table().setting("memory-runtime") * 2**30
    choice = Choice(2**33, "310P", RELEASE, "float16", 1, 256, 0.5, True, 2)
    estimate = runtime + rotary_bytes(model, "float16") + nz_copies(model, choice)
    assert held <= estimate <= 1.2 * held, (estimate, held)
