import math

import pytest
import torch

from npu_emulator.contract import NpuError
from npu_emulator.operators.vision_attention import (
    npu_flash_attention_unpad,
    npu_flash_attention_unpad_v2,
    npu_fusion_attention,
    npu_prompt_flash_attention,
)

WIDTH = 80


def peaked(
    lengths: list[int], heads: int = 2, width: int = WIDTH, dtype: torch.dtype = torch.float16
) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(sum(lengths))
    return [(torch.randn(sum(lengths), heads, width, generator=generator) * 3).to(dtype) for _ in range(3)]


def by_hand(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: list[int], scale: float) -> torch.Tensor:
    """float64, written out: no shared code with the operators."""
    out = torch.zeros(q.shape, dtype=torch.float64)
    begin = 0
    for n in lengths:
        for row in range(begin, begin + n):
            for head in range(q.shape[1]):
                scores = [
                    scale * float(q[row, head].double() @ k[other, head].double()) for other in range(begin, begin + n)
                ]
                top = max(scores)
                weights = [math.exp(score - top) for score in scores]
                for weight, other in zip(weights, range(begin, begin + n), strict=True):
                    out[row, head] += weight / sum(weights) * v[other, head].double()
        begin += n
    return out


def unpad(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: list[int], scale: float = 0.125) -> torch.Tensor:
    out = torch.empty_like(q)
    npu_flash_attention_unpad(q, k, v, torch.tensor(lengths, dtype=torch.int32), scale, q.shape[1], k.shape[1], out)
    return out


def far(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.double() - b.double()).norm() / b.double().norm())


def test_unpad_is_attention_within_each_sequence(machine):
    q, k, v = peaked([5, 3])
    assert far(unpad(q, k, v, [5, 3]), by_hand(q, k, v, [5, 3], 0.125)) < 1e-3


def test_a_zero_length_entry_changes_nothing_without_the_fault(machine):
    q, k, v = peaked([5, 3])
    assert torch.equal(unpad(q, k, v, [0, 5, 3]), unpad(q, k, v, [5, 3]))


def test_zero_length_fault_spoils_what_follows(machine):
    q, k, v = peaked([5, 3])
    right = unpad(q, k, v, [5, 3])
    machine("310P3", "unpad-zero-length")
    assert torch.equal(unpad(q, k, v, [5, 3]), right)
    assert far(unpad(q, k, v, [0, 5, 3])[:5], right[:5]) > 0.1


def test_borders_fault_leaves_one_sequence_right_and_spoils_two(machine):
    q, k, v = peaked([5, 3])
    two, one = unpad(q, k, v, [5, 3]), unpad(q, k, v, [8])
    machine("310P3", "unpad-borders")
    assert torch.equal(unpad(q, k, v, [8]), one)
    assert far(unpad(q, k, v, [5, 3]), two) > 0.1


@pytest.mark.parametrize(("kernel", "beyond"), [(0, False), (2, True)])
def test_only_kernel_type_2_is_approximate(machine, kernel, beyond):
    machine("310P3", "unpad-approximate")
    q, k, v = peaked([6, 2])
    out = torch.empty_like(q)
    lengths = torch.tensor([6, 2], dtype=torch.int32)
    npu_flash_attention_unpad_v2(q, k, v, lengths, 0.125, 2, 2, kernel, out=out)
    assert (far(out, by_hand(q, k, v, [6, 2], 0.125)) > 0.02) == beyond


def test_head_width_72_is_refused_like_the_chip_does(machine):
    machine("310P3", "head-multiple-of-16")
    q, k, v = peaked([4], width=72)
    with pytest.raises(NpuError, match="SelfAttentionOperation setup failed!"):
        unpad(q, k, v, [4])
    machine("310P3")
    assert unpad(q, k, v, [4]).shape == q.shape


@pytest.mark.parametrize("lengths", [[4], [4, 5], [0, 4, 8]])
def test_lengths_that_do_not_sum_to_the_rows_are_refused(machine, lengths):
    q, k, v = peaked([8])
    with pytest.raises(NpuError, match="sum to"):
        unpad(q, k, v, lengths)


def test_unequal_query_and_key_lengths_are_refused_on_310p(machine):
    q, k, v = peaked([8])
    with pytest.raises(NpuError, match="query has 8 rows and key 6"):
        unpad(q, k[:6], v[:6], [8])


def test_bfloat16_is_refused_where_the_chip_has_none(machine):
    machine("310P3", "no-bf16")
    q, k, v = peaked([4], dtype=torch.bfloat16)
    with pytest.raises(NpuError, match="DT_BFLOAT16") as refused:
        unpad(q, k, v, [4])
    assert refused.value.code == 161002


def test_tnd_wants_ends_and_is_for_910b_only(machine):
    q, k, v = peaked([5, 3])
    machine("910B3")
    out = npu_fusion_attention(q, k, v, 2, "TND", scale=0.125, actual_seq_qlen=[5, 8], actual_seq_kvlen=[5, 8])[0]
    assert far(out, by_hand(q, k, v, [5, 3], 0.125)) < 1e-3
    with pytest.raises(NpuError, match="ends"):
        npu_fusion_attention(q, k, v, 2, "TND", scale=0.125, actual_seq_qlen=[5, 3], actual_seq_kvlen=[5, 3])
    machine("310P3")
    with pytest.raises(NpuError, match="561002"):
        npu_fusion_attention(q, k, v, 2, "TND", scale=0.125, actual_seq_qlen=[5, 8], actual_seq_kvlen=[5, 8])


def test_tnd_modes_2_and_3_are_causal(machine):
    machine("910B3")
    q, k, v = peaked([4])
    out = npu_fusion_attention(
        q, k, v, 2, "TND", scale=0.125, sparse_mode=3, actual_seq_qlen=[4], actual_seq_kvlen=[4]
    )[0]
    assert torch.allclose(out[0], v[0])


@pytest.mark.parametrize("layout", ["BSND", "BSH", "BNSD"])
def test_prompt_flash_attention_layouts(machine, layout):
    q, k, v = peaked([5, 5])
    shaped = [t.view(2, 5, 2, WIDTH) for t in (q, k, v)]
    if layout == "BSH":
        shaped = [t.flatten(2) for t in shaped]
    if layout == "BNSD":
        shaped = [t.transpose(1, 2) for t in shaped]
    out = npu_prompt_flash_attention(
        *shaped, num_heads=2, scale_value=0.125, next_tokens=2147483647, input_layout=layout
    )
    assert out.shape == shaped[0].shape
    back = out.transpose(1, 2) if layout == "BNSD" else out
    assert far(back.reshape(10, 2, WIDTH), by_hand(q, k, v, [5, 5], 0.125)) < 1e-3


@pytest.mark.parametrize(
    "arguments",
    [{"actual_seq_lengths": [5]}, {"num_key_value_heads": 1}, {"next_tokens": 5}, {"sparse_mode": 2}],
)
def test_prompt_flash_attention_refuses_on_310p_what_its_documentation_excludes(machine, arguments):
    q, k, v = (t.view(1, 5, 2, WIDTH) for t in peaked([5]))
    call = {"num_heads": 2, "input_layout": "BSND", "next_tokens": 2147483647} | arguments
    with pytest.raises(NpuError, match="161002"):
        npu_prompt_flash_attention(q, k, v, **call)
