"""Fixes that people got wrong before: each must fail where the right one passes. Emulated operators."""

import itertools

import pytest
import torch

from ascend_vl.adaptations.seams.attention_operators import OPERATORS, default_width, padded
from ascend_vl.adaptations.seams.lengths import Lengths, LengthsOfForward
from ascend_vl.probes.judge import judge, relative
from ascend_vl.probes.references import packed_attention, peaked_heads

HEADS, SIZE, PICTURES = 2, 72, (40, 24, 40)
SCALE = SIZE**-0.5
CHIPS = {"unpad": "310P3", "unpad-approximate": "310P3", "prompt-flash": "310P3", "plain": "310P3"} | {
    "fusion": "910B3",
    "fused-infer": "910B3",
}


@pytest.fixture
def heads() -> tuple[torch.Tensor, ...]:
    return peaked_heads(sum(PICTURES), HEADS, SIZE, torch.float16)


def lengths() -> Lengths:
    return Lengths.of(PICTURES, sum(PICTURES))


def verdict(heads, target):
    golden = packed_attention(*heads, PICTURES, SCALE, torch.float64)
    return judge(golden, packed_attention(*heads, PICTURES, SCALE, torch.float16), target)


@pytest.mark.parametrize("operator", list(OPERATORS))
def test_every_operator_is_right_at_its_own_width(machine, heads, operator):
    machine(CHIPS[operator], "head-multiple-of-16", "fia-head-width")
    width = default_width(operator, SIZE)
    assert verdict(heads, padded(operator, *heads, lengths(), SCALE, width)).right


@pytest.mark.parametrize(
    ("operator", "width"), [("unpad", 80), ("fusion", 80), ("prompt-flash", 80), ("fused-infer", 128), ("plain", 72)]
)
def test_without_a_probe_heads_are_no_wider_than_the_operator_needs(operator, width):
    assert default_width(operator, SIZE) == width


@pytest.mark.parametrize("width", [80, 96, 128])
def test_padding_is_exact_at_any_width(machine, heads, width):
    wide = padded("unpad", *heads, lengths(), SCALE, width)
    assert relative(wide, padded("unpad", *heads, lengths(), SCALE, SIZE).double()) < 1e-3


@pytest.mark.parametrize("width", [80, 128])
def test_the_scale_of_the_padded_width_is_wrong(machine, heads, width):
    assert not verdict(heads, padded("unpad", *heads, lengths(), width**-0.5, width)).right


@pytest.mark.parametrize("operator", ["unpad", "fusion", "prompt-flash"])
def test_ignoring_borders_is_wrong(machine, heads, operator):
    machine(CHIPS[operator])
    whole = Lengths.of((sum(PICTURES),), sum(PICTURES))
    assert not verdict(heads, padded(operator, *heads, whole, SCALE, 80)).right


def test_lengths_for_offsets_are_refused(machine):
    with pytest.raises(ValueError, match=r"\[0, 3520, 3520, 3520\]"):
        Lengths.of_offsets([0, 3520, 3520, 3520], 10560)
    assert Lengths.of_offsets([0, 3520, 7040, 10560], 10560).values == (3520, 3520, 3520)


def test_lengths_for_ends_are_refused_by_the_operator(machine, heads):
    machine("910B3")
    confused = Lengths(PICTURES, torch.tensor(PICTURES), PICTURES)
    with pytest.raises(RuntimeError, match="ends"):
        padded("fusion", *heads, confused, SCALE, 80)


@pytest.mark.parametrize("offsets", [[0], [1, 5], [0, 5, 5, 8], [0, 5], [0, 5, 9]])
def test_offsets_that_do_not_fit_are_refused(offsets):
    with pytest.raises(ValueError, match="8 patches"):
        Lengths.of_offsets(offsets, 8)


def test_lengths_are_taken_to_the_host_once_a_forward():
    taken = []

    class Counted(torch.Tensor):
        def tolist(self):
            taken.append(1)
            return torch.Tensor.tolist(self)

    of_forward = LengthsOfForward()
    first, second = (torch.tensor([0, 5, 8]).as_subclass(Counted) for _ in range(2))
    layers = 27
    found = [of_forward.get(first, 8, as_offsets=True) for _ in range(layers)]
    assert len(taken) == 1
    assert found[0].values == (5, 3)
    of_forward.get(second, 8, as_offsets=True)
    assert len(taken) == 2


def test_lengths_filled_anew_are_taken_in_the_next_forward():
    source, of_forward = torch.tensor([5, 3]), LengthsOfForward()
    assert of_forward.get(source, 8, as_offsets=False).values == (5, 3)
    source.copy_(torch.tensor([2, 6]))
    of_forward.forget()
    assert of_forward.get(source, 8, as_offsets=False).values == (2, 6)


def test_lengths_in_inference_mode_as_workers_run():
    with torch.inference_mode():
        source = torch.tensor([0, 5, 8])
        assert LengthsOfForward().get(source, 8, as_offsets=True).values == (5, 3)


@pytest.mark.parametrize("pictures", [(8,) * 32, (8, 24, 8, 24), (64, 8)])
def test_equal_pictures_share_one_call(machine, calls, pictures):
    rows = sum(pictures)
    q, k, v = peaked_heads(rows, HEADS, 80, torch.float16)
    out = padded("prompt-flash", q, k, v, Lengths.of(pictures, rows), SCALE, 80)
    assert calls.names() == ["npu_prompt_flash_attention"] * len(set(pictures))
    want = packed_attention(q, k, v, pictures, SCALE, torch.float64)
    assert relative(out, want) < 2e-3
    assert sum(b - a for a, b in itertools.pairwise([0, *itertools.accumulate(pictures)])) == rows
