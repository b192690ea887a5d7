"""Each fault once on the unmodified vllm-ascend: the framework fails as users report, its own adaptation cures it.

Emulated: nothing here is about hardware. Few processes a stack, many faults in each.
"""

import functools
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import matrix  # noqa: E402
from npu_emulator import stacks  # noqa: E402

pytestmark = pytest.mark.emulated

STACKS = ("0.18.0", "0.23.0.post1")
# What fails on 310P without ascend-vl, and how: an error text, or "features" for a spoilt vision tower.
FAILURES = {
    ("0.18.0", "rotary-fp32"): "same dtype",
    ("0.18.0", "rotary-coarse"): "features",
    ("0.18.0", "unpad-borders"): "features",
    ("0.18.0", "no-bf16"): "161002",
    ("0.18.0", "h2d-race"): "index",
    ("0.18.0", "repeat-crash"): "507015",
    ("0.23.0.post1", "rotary-fp32"): "same dtype",
    ("0.23.0.post1", "rotary-coarse"): "features",
    ("0.23.0.post1", "unpad-borders"): "features",
    ("0.23.0.post1", "unpad-approximate"): "features",
    ("0.23.0.post1", "no-bf16"): "161002",
    ("0.23.0.post1", "h2d-race"): "index",
    ("0.23.0.post1", "repeat-crash"): "507015",
    ("0.23.0.post1", "index-put"): "507018",
}
HANDLED = {
    ("0.18.0", "head-multiple-of-16"): "pads heads to 128",
    ("0.18.0", "unpad-zero-length"): "true lengths",
    ("0.18.0", "unpad-approximate"): "operator not called",
    ("0.18.0", "index-put"): "masked_scatter",
    ("0.23.0.post1", "head-multiple-of-16"): "pads heads to 128",
    ("0.23.0.post1", "unpad-zero-length"): "operator not called",
}


@functools.cache
def cells(stack: str) -> dict[str, matrix.Cell]:
    """All cells of a stack on 310P3, run once; the files of vllm and vllm-ascend must be as published afterwards."""
    stacks.make(stack, ROOT, ROOT)
    folder = Path(os.environ.get("ASCEND_VL_MATRIX") or ROOT / "out" / "matrix-tests")
    folder.mkdir(parents=True, exist_ok=True)
    found = matrix.collect(stack, "310P3", folder, matrix.checkpoint(folder))
    assert stacks.check(stack, ROOT) == []
    return {cell.fault: cell for cell in found}


@pytest.mark.parametrize("stack", STACKS)
def test_without_a_fault_none_is_active_and_operators_and_answers_are_the_same(stack: str) -> None:
    cell = cells(stack)["none"]
    assert not cell.fails
    assert cell.cured, cell.ours
    assert cell.active == []
    assert cell.ours["operators"]["same"], cell.ours["operators"]


@pytest.mark.parametrize(("stack", "fault"), list(FAILURES))
def test_it_fails_alone_and_is_cured_by_exactly_its_own_adaptation(stack: str, fault: str) -> None:
    cell = cells(stack)[fault]
    assert cell.fails and FAILURES[stack, fault] in cell.failure, cell.stock
    assert cell.cured, cell.ours
    assert cell.active == [matrix.CURES[fault]]


@pytest.mark.parametrize(("stack", "fault"), list(HANDLED))
def test_what_upstream_handles_does_not_show(stack: str, fault: str) -> None:
    cell = cells(stack)[fault]
    assert not cell.fails, cell.stock
    assert HANDLED[stack, fault] in matrix.verdict(cell, matrix.upstream(stack, "310P3", fault)).en


@pytest.mark.parametrize("stack", STACKS)
def test_all_faults_that_the_chip_has_together_are_cured_together(stack: str) -> None:
    found = cells(stack)
    assert found["default"].fails
    assert found["default"].cured, found["default"].ours
    assert set(found["default"].active) == matrix.expected(found["default"], list(found.values()))


def test_every_row_is_judged() -> None:
    judged = {*FAILURES, *HANDLED} | {(stack, row) for stack in STACKS for row in ("none", "default")}
    assert judged == {(stack, fault) for stack in STACKS for fault in matrix.CURES}
