"""Chips that other services use: idle ones are taken first, busy ones with what is free."""

from dataclasses import replace

import pytest

from ascend_vl.errors import AscendVLError
from ascend_vl.machine import Holder, Machine, describe
from ascend_vl.machine.checks import troubles
from ascend_vl.machine.detect import visible
from ascend_vl.plan import DoesNotFit, Wishes, resolve
from ascend_vl.plan.model import Model, known_model
from ascend_vl.plan.outputs import FORMS
from ascend_vl.plan.sharing import idle_part

GIB = 2**30


def model(name: str = "qwen3-vl-8b") -> Model:
    found = known_model(name)
    assert found is not None
    return found


def busy(*devices: int, chips: int = 2, held: float = 30.0) -> Machine:
    """A 300I Duo machine on which vllm (77) holds memory of those chips."""
    machine = describe(chip="300i-duo", chips=chips)
    holder = Holder(77, "vllm", int(held * GIB))
    taken = [
        replace(chip, used_bytes=int(held * GIB), holders=(holder,)) if chip.device in devices else chip
        for chip in machine.chips
    ]
    return replace(machine, chips=tuple(taken))


def test_the_idle_chip_is_taken() -> None:
    plan = resolve(model(), Wishes(max_model_len=4096), busy(0))
    assert [chip.device for chip in plan.machine.chips] == [1]
    assert plan.environment["ASCEND_RT_VISIBLE_DEVICES"] == "1"
    assert plan.value("gpu_memory_utilization") == 0.9
    assert any("vllm (77)" in warning.en and "vllm (77)" in warning.zh for warning in plan.warnings)
    container = FORMS["docker"](plan)
    assert "/dev/davinci1" in container and "/dev/davinci0" not in container
    # Inside the container the chip is number 0.
    assert "ASCEND_RT_VISIBLE_DEVICES" not in container
    assert "export ASCEND_RT_VISIBLE_DEVICES=1" in FORMS["command"](plan)


def test_without_a_busy_chip_nothing_is_chosen() -> None:
    plan = resolve(model(), Wishes(max_model_len=4096), busy())
    assert "ASCEND_RT_VISIBLE_DEVICES" not in plan.environment
    assert len(plan.machine.chips) == 2


def test_chips_of_others_are_used_only_where_the_idle_ones_do_not_do() -> None:
    assert idle_part(busy(0), 2) is None
    assert idle_part(busy(0, 1), None) is None
    found = idle_part(busy(0, 2, chips=4), 2)
    assert found is not None and [chip.device for chip in found.chips] == [1, 3]
    # One idle chip cannot hold 32B: the plan is made, or refused, with all of them.
    with pytest.raises(DoesNotFit) as caught:
        resolve(model("qwen3-vl-32b"), Wishes(), busy(0))
    assert len(caught.value.plan.machine.chips) == 2


def test_two_services_on_one_chip() -> None:
    first = resolve(model("qwen3-vl-4b"), Wishes(gpu_memory_utilization=0.45), describe(chip="800i-a2", chips=1))
    held = first.memory.budget / GIB
    second = resolve(model("qwen3-vl-4b"), Wishes(), describe(chip="800i-a2", chips=1, held=held))
    share = second.value("gpu_memory_utilization")
    assert isinstance(share, float) and 0.5 <= share <= 0.55
    assert first.memory.budget + second.memory.budget <= first.memory.choice.total


def test_doctor_names_who_holds_a_chip_and_how_much_is_left() -> None:
    found = [one for one in troubles(busy(1)) if one.id == "chip-busy"]
    assert len(found) == 1
    for text in (found[0].what.en, found[0].what.zh):
        assert "vllm (77)" in text and "30.0 GiB" in text and "13.2 GiB" in text
    assert "0.3" in found[0].do.en and "0.3" in found[0].do.zh


def test_the_runtimes_list_of_chips_is_kept() -> None:
    chips = list(describe(chip="300i-duo", chips=4).chips)
    assert visible(chips, None) == (chips, [])
    assert visible(chips, " ") == (chips, [])
    assert visible(chips, "3, 1") == ([chips[3], chips[1]], [])
    assert visible(chips, "9,x") == (chips, ["no-visible-chip"])
    assert visible([], "1") == ([], [])
    machine = replace(describe(chip="300i-duo"), problems=("no-visible-chip",))
    assert "no-visible-chip" in [one.id for one in troubles(machine)]


@pytest.mark.parametrize("held", [-1.0, 1000.0])
def test_what_others_hold_must_fit_the_chip(held: float) -> None:
    with pytest.raises(AscendVLError) as caught:
        describe(chip="300i-duo", held=held)
    assert caught.value.code == "machine-option-out-of-range"
