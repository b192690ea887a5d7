"""`serve` asks what is not known yet at its plan's shapes, before the engine takes the chips."""

from types import SimpleNamespace

import pytest

from ascend_vl.adaptations.record import Finding
from ascend_vl.language import Text
from ascend_vl.machine import Chip, Machine
from ascend_vl.plan import adapting
from ascend_vl.probes import cache, runner
from ascend_vl.probes.registry import PROBES

FINE = Finding(False, Text("fine", "正常"))
CHIP = Chip(0, 0, 0, "310P3", "310P", "300i-duo", 44 * 2**30)
PACKAGES = {"vllm-ascend": "0.23.0.post1", "vllm": "0.23.0", "torch-npu": "2.10.0.post4"}


def plan(**changes: object) -> SimpleNamespace:
    machine = Machine(**({"chips": (CHIP, CHIP), "packages": PACKAGES} | changes))
    vision = SimpleNamespace(heads=16, head_dim=72, deepstack=(8, 16, 24))
    model = SimpleNamespace(vision=vision, text=SimpleNamespace(hidden=4096))
    return SimpleNamespace(model=model, machine=machine, tensor_parallel_size=2, value=lambda name: "float16")


@pytest.fixture
def asked(monkeypatch, tmp_path):
    names = []
    monkeypatch.setenv("ASCEND_VL_CACHE", str(tmp_path))
    monkeypatch.setattr(runner, "ask", lambda name, shapes, **options: names.append((name, shapes)) or FINE)
    return names


def test_only_what_is_not_known_is_asked_at_the_shapes_of_one_rank(asked):
    wanted = plan()
    shapes = adapting.shapes_of(wanted.model, "float16", 2)
    assert (shapes.vision_heads, shapes.head_size, shapes.merged) == (8, 72, 3 * 4096)
    cache.store(PROBES["index-put"], adapting.facts_of(wanted.machine), shapes, FINE)
    assert adapting.ask(wanted)
    names = [name for name, _ in asked]
    assert "index-put" not in names
    assert "vision-borders" in names
    assert {at for _, at in asked} == {shapes}
    asked.clear()
    assert not adapting.ask(wanted)
    assert asked == []


@pytest.mark.parametrize("changes", [{"chips": ()}, {"described": True}])
def test_without_a_chip_here_nothing_is_asked(asked, changes):
    assert not adapting.ask(plan(**changes))
    assert asked == []


@pytest.mark.parametrize(("name", "value"), [("ASCEND_VL", "off"), ("ASCEND_VL_PROBE", "off")])
def test_the_user_can_say_no(asked, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    assert not adapting.ask(plan())
    assert asked == []
