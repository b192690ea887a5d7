import pytest

from npu_emulator import faults
from npu_emulator.machine import VARIABLE, Machine


def test_every_fault_says_how_it_is_known():
    for name, fault in faults.FAULTS.items():
        assert fault.name == name
        assert fault.source.strip() and fault.effect.strip()
        assert fault.evidence in ("proven", "reported", "assumed")


def test_the_faults_of_the_brief_exist():
    wanted = {
        "index-put",
        "rotary-fp32",
        "unpad-borders",
        "unpad-zero-length",
        "unpad-approximate",
        "h2d-race",
        "repeat-crash",
    }
    assert wanted <= set(faults.FAULTS)
    assert {"late-error", "no-bf16", "head-multiple-of-16"} <= set(faults.FAULTS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("none", set()),
        ("", set()),
        ("index-put", {"index-put"}),
        ("index-put, late-error", {"index-put", "late-error"}),
        ("default", {"index-put", "unpad-approximate", "no-bf16", "head-multiple-of-16"}),
        ("default,-index-put", {"unpad-approximate", "no-bf16", "head-multiple-of-16"}),
    ],
)
def test_parse(text, expected):
    assert faults.parse(text) == expected


def test_defaults_follow_chip_and_cann():
    old = faults.defaults("310P3", "8.3.RC2")
    assert {"rotary-fp32", "unpad-zero-length", "repeat-crash"} <= old
    assert "index-put" not in old
    assert faults.defaults("910B3", "9.1.0") == {"fia-head-width"}


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="no fault 'indexput'"):
        faults.parse("indexput")
    with pytest.raises(KeyError):
        faults.active("indexput")


def test_active_reads_the_machine(monkeypatch):
    monkeypatch.setenv(VARIABLE, Machine(faults=frozenset({"index-put"})).to_json())
    assert faults.active("index-put")
    assert not faults.active("rotary-fp32")
