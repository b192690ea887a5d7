"""From "this answer is wrong" to the operator, its shape and the cure, on unmodified vllm-ascend releases.

Everything here is emulated: an emulated 310P3 with one named fault, nothing about hardware. The chip is not probed
first (ASCEND_VL_PROBE=off), so that no adaptation that a probe would switch on hides the fault.
"""

import json
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy
import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "npu_emulator"))

import tiny_checkpoint  # noqa: E402

from npu_emulator import launch, stacks  # noqa: E402

pytestmark = pytest.mark.emulated

# stack, faults -> what must be named; listed before anything runs.
ATTENTION = {"stage": "tower", "kind": "vision attention"}
EXPECTED: dict[tuple[str, str], dict[str, Any]] = {
    ("0.18.0", "none"): {},
    ("0.18.0", "unpad-borders"): {**ATTENTION, "cure": "vision-operator"},
    ("0.18.0", "unpad-borders,late-error"): {**ATTENTION, "cure": "vision-operator"},
    ("0.18.0", "rotary-coarse"): {"stage": "tower", "kind": "rotary", "cure": "rotary-exact"},
    ("0.18.0", "rotary-coarse,late-error"): {"stage": "tower", "kind": "rotary", "cure": "rotary-exact"},
    ("0.23.0.post1", "unpad-approximate"): {**ATTENTION, "cure": "vision-exact-kernel"},
    ("0.23.0.post1", "unpad-approximate,late-error"): {**ATTENTION, "cure": "vision-exact-kernel"},
    ("0.11.0", "unpad-zero-length"): {**ATTENTION, "cure": "vision-lengths"},
    ("0.11.0", "unpad-zero-length,late-error"): {**ATTENTION, "cure": "vision-lengths"},
}
# 0.11 has adaptations in force where nothing was probed, each of which brings an attention that heals its fault.
SUPPRESSED = {"0.11.0": "-vision-lengths,-vision-head-width,-rotary-dtype"}
QUESTION = {"id": "wrong", "images": ["first.png", "second.png"], "prompt": "compare", "max_tokens": 4}


def noise(seed: int, width: int, height: int) -> Image.Image:
    """A picture of coarse noise."""
    values = numpy.random.default_rng(seed).integers(0, 256, (height // 8, width // 8, 3), dtype=numpy.uint8)
    return Image.fromarray(values).resize((width, height), Image.Resampling.NEAREST)


def started(folder: Path, keys: list[tuple[str, str]]) -> dict[tuple[str, str], "Future[tuple[int, dict[str, Any]]]"]:
    """The bisections of some entries of EXPECTED, two at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    model = tiny_checkpoint.make(folder / "model")
    noise(1, 96, 64).save(folder / "first.png")
    noise(2, 64, 96).save(folder / "second.png")
    (folder / "cases.jsonl").write_text(json.dumps(QUESTION))
    for stack in sorted({stack for stack, _ in keys}):
        stacks.make(stack, ROOT, ROOT)
    pool = ThreadPoolExecutor(2)
    found = {key: pool.submit(bisected, folder, model, *key) for key in keys}
    pool.shutdown(wait=False)
    return found


def bisected(folder: Path, model: Path, stack: str, faults: str) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON of `ascend-vl bisect` on an emulated 310P3 with these faults."""
    out = folder / f"{stack}-{faults.replace(',', '-')}"
    machine = launch.describe("310P3", 1, 4, None, stack, faults)
    environment = launch.environment(machine) | {
        "ASCEND_VL_PROBE": "off",
        "ASCEND_VL_CACHE": str(folder / "cache"),
        "ASCEND_VL_ADAPT": SUPPRESSED.get(stack, ""),
        "OMP_NUM_THREADS": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
    python = ROOT / f".venv-ascend-{stack}" / "bin" / "python"
    command = [str(python), "-m", "ascend_vl", "bisect", f"transformers:{model}", str(model), "--json"]
    more = ["--cases", str(folder / "cases.jsonl"), "--case", "wrong", "--dtype", "float16", "--out", str(out)]
    done = subprocess.run(command + more, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.stdout.startswith("{"), done.stderr[-3000:]
    return done.returncode, json.loads(done.stdout)


@pytest.fixture(scope="module")
def findings(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """findings(stack, faults) -> (exit code, finding), of the tests that were selected."""
    chosen = [item.callspec.params for item in request.session.items if item.path == request.path]
    keys = dict.fromkeys((params["stack"], params["faults"]) for params in chosen)
    running = started(tmp_path_factory.mktemp("emulated"), list(keys))
    return lambda stack, faults: running[stack, faults].result()


@pytest.mark.parametrize(("stack", "faults"), [key for key, expected in EXPECTED.items() if expected])
def test_the_fault_is_named_with_its_shape_and_its_cure(findings: Any, stack: str, faults: str) -> None:
    code, found = findings(stack, faults)
    expected = EXPECTED[stack, faults]
    assert (code, found["verdict"], found["stage"]) == (1, "FAIL", expected["stage"]), found
    assert found["emulated"] is True
    assert found["module"].startswith("visual.blocks.")
    assert found["operator_kind"] == expected["kind"], found
    assert found["operator_module"].startswith(found["module"])
    assert any("float16[" in shape for shape in found["shapes"])
    assert found["cure"] == {"adaptation": expected["cure"], "confirmed": True}, found
    assert found["captures"] <= found["capture_limit"]
    assert stacks.check(stack, ROOT) == []
    reproduced = subprocess.run(
        [sys.executable, "reproduce.py"], cwd=found["reproduction"], capture_output=True, text=True, check=False
    )
    assert reproduced.returncode == 0, reproduced.stderr
    assert json.loads(reproduced.stdout)["expected"] == found["why"]


@pytest.mark.parametrize(("stack", "faults"), [key for key, expected in EXPECTED.items() if not expected])
def test_without_a_fault_nothing_is_named(findings: Any, stack: str, faults: str) -> None:
    code, found = findings(stack, faults)
    assert code == 0 and found["verdict"].startswith("PASS"), found
    assert (found["module"], found.get("operator"), found.get("cure")) == (None, None, None)
