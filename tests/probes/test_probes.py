"""Each probe finds its own fault, and nothing where there is none. Emulated operators, in this process."""

from dataclasses import replace

import pytest

from ascend_vl.adaptations.record import Finding
from ascend_vl.probes import vision
from ascend_vl.probes.child import failure
from ascend_vl.probes.registry import PROBES
from ascend_vl.probes.shapes import Shapes

pytestmark = pytest.mark.usefixtures("index_put_of_the_device")

SHAPES = Shapes(vision_heads=2, head_size=72, hidden=64, merged=192, pictures=(24, 8, 24, 48))


def ask(name: str) -> Finding:
    noted: dict[str, object] = {}
    try:
        finding = PROBES[name].run(SHAPES, lambda **found: noted.update(found))
    except Exception as error:
        return failure(error, noted)
    return Finding(finding.fault, finding.reason, noted | dict(finding.numbers))


ANY = [
    "bfloat16",
    "index-put",
    "rotary-dtype",
    "rotary-values",
    "vision-head-width",
    "vision-precision",
    "vision-borders",
    "copy-race",
]


@pytest.mark.parametrize("name", [*ANY, "vision-zero-length"])
@pytest.mark.parametrize(("chip", "version"), [("310P3", "0.11.0"), ("310P3", "0.18.0"), ("310P3", "0.23.0")])
def test_without_faults_all_are_fine_on_310p(machine, name, chip, version):
    machine(chip, version)
    finding = ask(name)
    assert finding.fault is False, finding


@pytest.mark.parametrize("name", ANY)
@pytest.mark.parametrize("version", ["0.18.0", "0.23.0"])
def test_without_faults_all_are_fine_on_910b(machine, name, version):
    machine("910B3", version)
    finding = ask(name)
    assert finding.fault is False, finding


@pytest.mark.parametrize(
    ("fault", "version", "name", "numbers"),
    [
        ("no-bf16", "0.18.0", "bfloat16", {"code": 161002}),
        ("index-put", "0.23.0", "index-put", {"code": 507018, "method": "index-copy"}),
        ("rotary-fp32", "0.18.0", "rotary-dtype", {"returned": "torch.float32"}),
        ("rotary-coarse", "0.18.0", "rotary-values", {}),
        ("rotary-coarse", "0.11.0", "rotary-values", {}),
        ("unpad-zero-length", "0.11.0", "vision-zero-length", {}),
        ("head-multiple-of-16", "0.11.0", "vision-head-width", {"width": 80}),
        ("unpad-approximate", "0.23.0", "vision-precision", {"operator": "unpad", "width": 72}),
        ("unpad-borders", "0.11.0", "vision-borders", {"operator": "prompt-flash"}),
        ("unpad-borders", "0.18.0", "vision-borders", {"operator": "prompt-flash"}),
        ("unpad-borders", "0.23.0", "vision-borders", {"operator": "prompt-flash"}),
    ],
)
def test_each_finds_its_fault_and_the_others_find_none(machine, fault, version, name, numbers):
    machine("310P3", version, fault)
    finding = ask(name)
    assert finding.fault is True, finding
    assert finding.numbers.items() >= numbers.items()
    assert finding.reason.en and finding.reason.zh
    others = {other: ask(other).fault for other in [*ANY, "vision-zero-length"] if other != name}
    assert set(others.values()) == {False}, others


def test_the_smallest_accepted_width_is_found_per_operator(machine):
    machine("310P3", "0.23.0", "unpad-approximate", "head-multiple-of-16")
    assert ask("vision-precision").numbers["width"] == 80


def test_wrong_values_of_the_right_dtype_are_no_case_for_a_cast(machine, monkeypatch):
    import torch_npu

    monkeypatch.setattr(torch_npu, "npu_rotary_mul", lambda x, cos, sin: (x * cos).to(x.dtype))
    assert ask("rotary-dtype").fault is False
    finding = ask("rotary-values")
    assert finding.fault is True
    assert "values" in finding.reason.en


def test_a_head_that_is_not_compared_must_still_be_finite(machine):
    machine("310P3", "0.18.0")
    question = vision.Question(replace(SHAPES, vision_heads=4), (24, 8))
    right = question.ask("unpad", 80)
    assert question.judge(right).right
    right[3, 1:-1] = float("inf")
    assert not question.judge(right).right
    assert "shape" in question.judge(right[:, :1]).reason
