"""The unmodified vllm-ascend releases on emulated chips, answering like Transformers (emulated: nothing about
hardware).

Offline, one process a stack and chip. Tensor parallelism, graphs and everything over HTTP: test_served.py.
"""

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

import reference  # noqa: E402
import tiny_checkpoint  # noqa: E402

from npu_emulator import launch, stacks  # noqa: E402

pytestmark = pytest.mark.emulated

# Largest difference of a log-probability between two float16 computations of the peaked checkpoint; 0.05 was seen.
LOGPROB = 0.12
# The tower may be this much further from float32 than Transformers in float16 is.
TOWER = 2.0


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint.make(tmp_path_factory.mktemp("tiny") / "peak")


@functools.cache
def interpreter(version: str) -> Path:
    """Python of a stack, made when it is not there."""
    return stacks.make(version, ROOT, ROOT) / "bin" / "python"


def serve(version: str, chip: str, model: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run serve_tiny.py on an emulated machine without faults."""
    machine = launch.describe(chip, 1, 4, None, version, "none")
    command = [str(interpreter(version)), str(HERE / "serve_tiny.py"), str(model), *options]
    done = subprocess.run(
        command, env=launch.environment(machine), capture_output=True, text=True, check=False, timeout=1500
    )
    assert stacks.check(version, ROOT) == []
    return done


def answers(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr[-4000:]
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("ANSWERS "))
    found: list[dict[str, Any]] = json.loads(line.removeprefix("ANSWERS "))
    return found


def check_answers(model: Path, given: list[dict[str, Any]]) -> None:
    verdict = reference.judge(reference.logits(model, given, torch.float16), given)
    assert verdict["decidable"] >= 10
    assert verdict["wrong"] == 0, verdict
    assert verdict["largest"] < LOGPROB, verdict


@pytest.mark.parametrize("chip", ["310P3", "910B3"])
@pytest.mark.parametrize("version", ["0.18.0", "0.23.0.post1"])
def test_answers_and_tower_equal_transformers(version: str, chip: str, model: Path, tmp_path: Path) -> None:
    file = tmp_path / "features.npz"
    careless = (version, chip) == ("0.18.0", "310P3")
    done = serve(version, chip, model, "--features", str(file), *(["--plant-seq-len"] if careless else []))
    check_answers(model, answers(done))
    saved = numpy.load(file)
    first, second, *together = [torch.from_numpy(saved[name]) for name in saved.files]
    assert torch.equal(first, together[0]) and torch.equal(second, together[1])
    exact, half = reference.features(model, torch.float32), reference.features(model, torch.float16)
    for seen, wide, narrow in zip((first, second), exact, half, strict=True):
        assert reference.distance(seen, wide) < TOWER * reference.distance(narrow, wide) + 1e-3
    if careless:
        # What a plugin would get that leaves the lengths on the NPU; tensors that only pose as NPU ones let it pass.
        assert "seq_len must be on the host" in done.stdout.partition("PLANTED ")[2], done.stdout[-2000:]
