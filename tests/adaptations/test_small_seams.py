import pytest
import torch
from towers import Model

from ascend_vl.adaptations import MachineFacts, apply

FACTS = MachineFacts(chip="310P3", vllm_ascend="0.18.0")


@pytest.fixture
def seen(monkeypatch):
    """What the two copying methods were told about waiting, in order."""
    told = []

    def noting(original):
        def method(tensor, *args, **kwargs):
            told.append(kwargs.get("non_blocking", args[1] if len(args) > 1 else False))
            return original(tensor, *args, **kwargs)

        return method

    for name in ("to", "copy_"):
        monkeypatch.setattr(torch.Tensor, name, noting(getattr(torch.Tensor, name)))
    return told


def copy_around() -> torch.Tensor:
    """Copies without waiting, by keyword and by place, as vLLM does."""
    source = torch.ones(3)
    first = source.to("cpu", non_blocking=True)
    second = torch.empty(3).copy_(source, non_blocking=True)
    return first + second + torch.empty(3).copy_(source, True)


def test_every_copy_waits(machine, monkeypatch, seen):
    copy_around()
    assert seen == [True, True, True]
    monkeypatch.setenv("ASCEND_VL_ADAPT", "+blocking-copies,-embedding-merge,-rotary-dtype")
    outcomes = {o.id: o for o in apply("construct", Model("0.18.0"), facts=FACTS, findings={})}
    names = [r.name for r in outcomes["blocking-copies"].replaced]
    assert names[:2] == ["torch.Tensor.to", "torch.Tensor.copy_"]
    seen.clear()
    assert copy_around().tolist() == [3.0, 3.0, 3.0]
    assert seen == [False, False, False]
