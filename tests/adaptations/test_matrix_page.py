"""The table's words follow from the lines of the runs."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from ascend_vl.adaptations import registry
from benchmarks.matrix import CURES, Cell, page, upstream, verdict, wrong
from npu_emulator.faults import FAULTS

RIGHT = {"error": None, "features_off": 1e-3, "differing_tokens": 0}


def cell(fault: str, stock: dict, ours: dict | None = None, stack: str = "0.18.0") -> Cell:
    return Cell(stack, "310P3", fault, stock, ours or {})


def test_every_fault_and_every_cure_exists():
    assert set(CURES) - {"none"} == {name for name in FAULTS if name not in ("late-error", "fia-head-width")}
    assert set(CURES.values()) - {""} == registry.ids()


@pytest.mark.parametrize(
    ("made", "text", "bad"),
    [
        (cell("rotary-fp32", {}), "not run", False),
        (cell("rotary-fp32", {"error": "dtype", "called": []}), "fails: dtype; not run with ascend-vl", True),
        (cell("rotary-fp32", {"error": "dtype"}, RIGHT | {"states": {"rotary-dtype": "active"}}), "cured", False),
        (
            cell(
                "rotary-fp32", {"error": "dtype"}, RIGHT | {"states": {"rotary-dtype": "active", "float16": "active"}}
            ),
            "`rotary-dtype`, `float16`",
            True,
        ),
        (cell("rotary-fp32", {"error": "dtype"}, RIGHT | {"states": {}}), "active: none", True),
        (
            cell("unpad-borders", {"error": None, "features_off": 0.4}, {"error": None, "features_off": 0.3}),
            "features off by 40 %; **not cured**",
            True,
        ),
        (
            cell("unpad-approximate", {"error": None, "features_off": 0.0, "called": ["x"]}),
            "operator not called",
            False,
        ),
        (cell("none", RIGHT, RIGHT | {"states": {"float16": "active"}}), "active: `float16`", True),
        (cell("none", RIGHT, RIGHT | {"states": {"float16": "probed-fine"}}), "active: none", False),
    ],
)
def test_verdicts(made, text, bad):
    assert text in verdict(made, None).en
    assert wrong(made) == bad


def test_prefix_caching_is_expected_on_310p_with_011_only():
    states = {"states": {"prefix-caching": "unprobed"}}
    assert not wrong(cell("none", RIGHT, RIGHT | states, stack="0.11.0"))
    assert wrong(cell("none", RIGHT, RIGHT | states))


def test_handled_upstream_in_the_records_own_words():
    assert "pads heads to 128" in upstream("0.18.0", "310P3", "head-multiple-of-16").en
    assert upstream("0.11.0", "310P3", "head-multiple-of-16") is None


def test_the_page_says_emulated_and_names_the_commit():
    cells = [Cell("0.18.0", "310P3", fault) for fault in CURES]
    pages = page(cells, "abc123")
    for text, word in zip(pages, ("emulated", "模拟"), strict=True):
        assert "abc123" in text
        assert word in text.splitlines()[0]
        assert text.count("| `") == len(CURES)
