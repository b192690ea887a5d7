import pytest
import torch

from npu_emulator.contract import NpuError
from npu_emulator.operators.rotary import (
    npu_apply_rotary_pos_emb,
    npu_mrope,
    npu_rotary_embedding,
    npu_rotary_mul,
    split_qkv_rmsnorm_mrope,
)


def table(length: int, width: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """(length, width): cos then sin of position times frequency."""
    angles = torch.arange(length)[:, None] / 100 ** (torch.arange(width // 2) / (width // 2))
    return torch.cat((angles.cos(), angles.sin()), -1).to(dtype)


def turned_as_complex(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """The halves of x (..., D) as one complex number each, times e^(i angle): another road to the same result."""
    first, second = x.double().chunk(2, -1)
    product = torch.complex(first, second) * torch.polar(torch.ones_like(angles).double(), angles.double())
    return torch.cat((product.real, product.imag), -1)


def test_rotary_mul_turns_halves_and_keeps_the_dtype(machine):
    x = torch.randn(1, 6, 2, 64).half()
    angles = torch.randn(6, 32)
    cos, sin = (torch.cat((f(angles), f(angles)), -1)[None, :, None] for f in (torch.cos, torch.sin))
    out = npu_rotary_mul(x, cos, sin)
    assert out.dtype == torch.float16
    assert torch.allclose(out.double(), turned_as_complex(x, angles[None, :, None]), atol=2e-3)


def test_rotary_fp32_fault_is_about_float16_only(machine):
    machine("310P3", "rotary-fp32")
    x, ones = torch.randn(1, 2, 1, 64), torch.ones(1, 2, 1, 64)
    assert npu_rotary_mul(x.half(), ones.half(), ones.half()).dtype == torch.float32
    assert npu_rotary_mul(x.bfloat16(), ones.bfloat16(), ones.bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize("width", [32, 72, 80])
def test_apply_rotary_takes_widths_64_and_128_only(machine, width):
    q = torch.randn(1, 3, 2, width).half()
    cos = torch.ones(1, 3, 1, width).half()
    with pytest.raises(NpuError, match="64 or 128"):
        npu_apply_rotary_pos_emb(q, q.clone(), cos, cos)


def test_apply_rotary_works_in_place_and_wants_one_dtype(machine):
    q, k = torch.randn(1, 3, 2, 64).half(), torch.randn(1, 3, 1, 64).half()
    before = q.clone()
    cos, sin = torch.zeros(1, 3, 1, 64).half(), torch.ones(1, 3, 1, 64).half()
    out, _ = npu_apply_rotary_pos_emb(q, k, cos, sin)
    assert out is q
    assert torch.equal(q, torch.cat((-before[..., 32:], before[..., :32]), -1))
    with pytest.raises(NpuError, match="dtypes differ"):
        npu_apply_rotary_pos_emb(q, k, cos.float(), sin)


def test_rotary_embedding_in_place_by_positions(machine):
    cache = table(20, 32)
    positions = torch.tensor([3, 19, 0])
    q, k = torch.randn(3, 2 * 32), torch.randn(3, 32)
    want = turned_as_complex(q.view(3, 2, 32), torch.atan2(*cache[positions].chunk(2, -1)[::-1])[:, None])
    npu_rotary_embedding(positions, q, k, 32, cache, True)
    assert torch.allclose(q.view(3, 2, 32).double(), want, atol=1e-5)


def test_mrope_takes_each_axis_where_its_section_says(machine):
    cache = table(50, 32)
    positions = torch.tensor([[1, 2], [10, 20], [30, 40]])
    q, k = torch.randn(2, 32), torch.randn(2, 32)
    out, _ = npu_mrope(positions, q, k, cache, 32, mrope_section=[6, 5, 5])
    axis = torch.tensor([0] * 6 + [1] * 5 + [2] * 5)
    frequencies = 100 ** -(torch.arange(16) / 16)
    angles = positions[axis].T * frequencies
    assert torch.allclose(out.double(), turned_as_complex(q, angles), atol=1e-4)
    with pytest.raises(NpuError, match="does not sum"):
        npu_mrope(positions, q, k, cache, 32, mrope_section=[6, 5, 4])


def test_split_normalise_and_turn_interleaved(machine):
    machine("910B3")
    tokens, width = 4, 32
    qkv = torch.randn(tokens, 4 * width)
    weights = torch.rand(width) + 0.5, torch.rand(width) + 0.5
    positions = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]])
    cos_sin = table(20, width)[positions]
    _q, k, v, gate = split_qkv_rmsnorm_mrope(qkv, *weights, cos_sin, 2, 1, width, 1e-6, [6, 5, 5], True)
    assert torch.equal(v, qkv[:, 3 * width :])
    assert gate.numel() == 0
    axis = torch.tensor([(i % 3) if i < 15 else 0 for i in range(16)])
    angles = positions[axis].T * 100 ** -(torch.arange(16) / 16)
    normal = torch.nn.functional.rms_norm(qkv[:, 2 * width : 3 * width], (width,), weights[1], 1e-6)
    assert torch.allclose(k.double(), turned_as_complex(normal, angles), atol=1e-4)
    machine("310P3")
    with pytest.raises(NpuError, match="no Triton"):
        split_qkv_rmsnorm_mrope(qkv, *weights, cos_sin, 2, 1, width, 1e-6, [6, 5, 5], True)
