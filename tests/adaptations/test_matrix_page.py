"""The table's words follow from the lines of the runs."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from ascend_vl.adaptations import registry
from benchmarks.matrix import CURES, OPERATORS, Cell, page, upstream, verdict, wrong
from npu_emulator.faults import FAULTS

ALL = sorted({name for names in OPERATORS.values() for name in names})
RIGHT = {"error": None, "features_off": 1e-3, "differing_tokens": 0, "operators": {"same": True, "count": 7}}
LATE = {"error": "index", "called": []}


def cell(fault: str, stock: dict, ours: dict | None = None, stack: str = "0.18.0", chip: str = "310P3") -> Cell:
    return Cell(stack, chip, fault, stock, ours or {})


def test_every_fault_and_every_cure_exists():
    assert set(CURES) - {"none", "default"} == {name for name in FAULTS if name not in ("late-error", "fia-head-width")}
    assert set(CURES.values()) - {""} == registry.ids()


@pytest.mark.parametrize(
    ("made", "text", "bad"),
    [
        (cell("rotary-fp32", {}), "not run", True),
        (cell("default", {}, chip="910B3"), "not with this chip", False),
        (cell("no-bf16", {}, chip="910B3"), "not with this chip", False),
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
        (cell("unpad-borders", {"error": None, "features_off": 0.0, "called": ALL}), "**does not show**", True),
        (cell("head-multiple-of-16", {"error": None, "features_off": 0.0, "called": ALL}), "pads heads to 128", False),
        (cell("none", RIGHT, RIGHT | {"operators": {"same": False}, "states": {}}), "**other operators**", True),
        (cell("none", RIGHT, RIGHT | {"states": {"float16": "active"}}), "active: `float16`", True),
        (cell("unpad-borders", {"error": None, "features_off": 0.0, "called": ALL}), "**does not show**", True),
        (cell("head-multiple-of-16", {"error": None, "features_off": 0.0, "called": ALL}), "pads heads to 128", False),
        (cell("none", RIGHT, RIGHT | {"operators": {"same": False}, "states": {}}), "**other operators**", True),
        (cell("none", RIGHT, RIGHT | {"states": {"float16": "probed-fine"}}), "active: none", False),
    ],
)
def test_verdicts(made, text, bad):
    handled = None if made.fault == "unpad-borders" else upstream(made.stack, made.chip, made.fault)
    assert text in verdict(made, handled).en
    assert wrong(made, [made]) == bad


def test_prefix_caching_is_expected_on_310p_with_011_only():
    states = {"states": {"prefix-caching": "unprobed"}}
    old, new = (cell("none", RIGHT, RIGHT | states, stack=stack) for stack in ("0.11.0", "0.18.0"))
    assert not wrong(old, [old])
    assert wrong(new, [new])


def test_all_faults_of_a_chip_together_need_the_cures_of_those_that_fail_alone():
    failing = [cell(fault, LATE, RIGHT, "0.23.0.post1") for fault in ("no-bf16", "index-put", "rotary-fp32")]
    cures = ["float16", "embedding-merge"]
    for states, bad in ((cures, False), (cures[:1], True), ([*cures, "rotary-dtype"], True)):
        ours = RIGHT | {"states": dict.fromkeys(states, "active")}
        together = cell("default", LATE, ours, "0.23.0.post1")
        assert wrong(together, [*failing, together]) == bad


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
