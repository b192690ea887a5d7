import inspect
import re
from pathlib import Path

import pytest
import torch
from torch.nn import functional

import npu_emulator.operators
from npu_emulator import contract
from npu_emulator.contract import OPERATORS, NpuError
from npu_emulator.operators.activation import npu_fast_gelu, npu_swiglu
from npu_emulator.operators.formats import FRACTAL_NZ, empty_with_format, get_npu_format, npu_format_cast
from npu_emulator.operators.indexing import index_put_
from npu_emulator.operators.matmul import npu_matmul_add_fp32
from npu_emulator.operators.moe import (
    npu_grouped_matmul,
    npu_moe_gating_top_k_softmax,
    npu_moe_init_routing_v2,
    npu_moe_token_unpermute,
)
from npu_emulator.operators.normalization import npu_add_rms_norm, npu_rms_norm
from npu_emulator.operators.quantization import npu_dynamic_quant, npu_quant_matmul, npu_quantize


def test_every_rule_has_its_source_and_every_host_argument_exists():
    assert len(OPERATORS) > 30
    for name, operator in OPERATORS.items():
        assert operator.source.strip(), name
        parameters = inspect.signature(operator.body).parameters
        open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        assert open_ended or set(operator.host) <= set(parameters), name


def test_no_source_no_rule():
    with pytest.raises(ValueError, match="states no source"):
        contract.operator("npu_rumoured", source="")


def test_every_module_of_bodies_is_imported():
    folder = Path(npu_emulator.operators.__file__).parent
    for path in folder.glob("*.py"):
        if re.search(r"^@operator\(", path.read_text(), re.MULTILINE):
            assert path.stem in npu_emulator.operators.__all__


def test_rms_norm_and_the_sum_it_returns(machine):
    x, residual, gamma = torch.randn(3, 64).half(), torch.randn(3, 64).half(), torch.rand(64).half()
    y, _ = npu_rms_norm(x, gamma, 1e-6)
    assert torch.allclose(y.float(), functional.rms_norm(x.float(), (64,), gamma.float(), 1e-6), atol=4e-3)
    y, _, total = npu_add_rms_norm(x, residual, gamma, 1e-6)
    assert torch.equal(total, x + residual)
    assert torch.equal(y, npu_rms_norm(total, gamma, 1e-6)[0])


def test_rms_norm_wants_gamma_of_its_own_dtype(machine):
    with pytest.raises(NpuError, match="dtypes differ"):
        npu_rms_norm(torch.randn(2, 8).half(), torch.rand(8), 1e-6)


def test_swiglu_and_its_multiple_of_32(machine):
    x = torch.randn(2, 64).half()
    want = functional.silu(x[:, :32].float()) * x[:, 32:].float()
    assert torch.allclose(npu_swiglu(x).float(), want, atol=2e-3)
    with pytest.raises(NpuError, match="multiple of 32"):
        npu_swiglu(torch.randn(2, 48).half())
    machine("910B3")
    assert npu_swiglu(torch.randn(2, 48).half()).shape == (2, 24)


def test_fast_gelu(machine):
    x = torch.randn(100)
    assert torch.allclose(npu_fast_gelu(x), x * torch.sigmoid(1.702 * x), atol=1e-6)


def test_nz_is_a_tag_in_memory_of_its_own(machine):
    x = torch.randn(4, 16).half()
    cast = npu_format_cast(x, FRACTAL_NZ)
    assert torch.equal(cast, x)
    assert cast.data_ptr() != x.data_ptr()
    assert (get_npu_format(cast), get_npu_format(x)) == (FRACTAL_NZ, 2)
    assert get_npu_format(empty_with_format([2, 3], torch.float16, acl_format=FRACTAL_NZ)) == FRACTAL_NZ


def test_bfloat16_has_no_nz_on_310p(machine):
    machine("310P3", "no-bf16")
    with pytest.raises(NpuError, match="DT_BFLOAT16"):
        npu_format_cast(torch.zeros(16, 16, dtype=torch.bfloat16), FRACTAL_NZ)


def test_index_put_fails_by_mask_only_and_only_with_the_fault(machine):
    mask, values = torch.tensor([True, False, True]), torch.tensor([1.0, 2.0])
    assert index_put_(torch.zeros(3), [mask], values).tolist() == [1.0, 0.0, 2.0]
    machine("310P3", "index-put")
    assert index_put_(torch.zeros(3), [torch.tensor([0, 2])], values).tolist() == [1.0, 0.0, 2.0]
    with pytest.raises(NpuError, match="error code is 507018") as crash:
        index_put_(torch.zeros(3), [mask], values)
    assert crash.value.code == 507018
    assert "kernelName=IndexPut" in str(crash.value)


def test_matmul_add(machine):
    x, w, c = torch.randn(2, 4).half(), torch.randn(2, 3).half(), torch.ones(4, 3)
    npu_matmul_add_fp32(x, w, c)
    assert torch.allclose(c, 1 + x.float().T @ w.float())


@pytest.mark.parametrize("kind", [0, 1])
def test_experts_give_what_a_loop_gives(machine, kind):
    tokens, experts, k, width, inner = 5, 4, 2, 8, 6
    x, weight = torch.randn(tokens, width), torch.randn(experts, width, inner)
    scores = torch.randn(tokens, experts)
    weights, ids, _ = npu_moe_gating_top_k_softmax(scores, k=k)
    order = torch.argsort(ids.flatten(), stable=True)
    counts = torch.bincount(ids.flatten(), minlength=experts)
    groups = counts if kind == 1 else counts.cumsum(0)
    grouped = npu_grouped_matmul(
        [x[order // k]], [weight], group_list=groups, split_item=2, group_type=0, group_list_type=kind
    )[0]
    back = torch.empty_like(order, dtype=torch.int32)
    back[order] = torch.arange(tokens * k, dtype=torch.int32)
    out = npu_moe_token_unpermute(grouped, back, weights)
    chances = scores.softmax(-1)
    for t in range(tokens):
        top = chances[t].topk(k).indices
        want = sum(chances[t, e] * (x[t] @ weight[e]) for e in top)
        assert torch.allclose(out[t], want, atol=1e-5)


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("inside", [(0, 4), (1, 3)])
def test_routing_sorts_the_tokens_of_the_experts_that_are_here(machine, inside, kind):
    first, last = inside
    x, weight = torch.randn(5, 8), torch.randn(4, 8, 6)
    chances = torch.randn(5, 4).softmax(-1)
    weights, ids = chances.topk(2)
    rows, where, tokens, _ = npu_moe_init_routing_v2(
        x,
        ids.to(torch.int32),
        active_num=10,
        expert_num=4,
        expert_tokens_num_type=kind,
        quant_mode=-1,
        active_expert_range=list(inside),
    )
    assert where.dtype == torch.int32
    local = [weight[first:last]]
    grouped = npu_grouped_matmul([rows], local, group_list=tokens, split_item=2, group_type=0, group_list_type=kind)[0]
    out = npu_moe_token_unpermute(grouped, where, weights)
    for t in range(5):
        here = [(w, e) for w, e in zip(weights[t], ids[t], strict=True) if first <= e < last]
        want = sum((w * (x[t] @ weight[e]) for w, e in here), torch.zeros(6))
        assert torch.allclose(out[t], want, atol=1e-5)


def test_quantised_product_is_near_the_plain_one(machine):
    x, w = torch.randn(3, 64), torch.randn(64, 5)
    steps = w.abs().amax(0) / 127
    x8, row_scale = npu_dynamic_quant(x)
    out = npu_quant_matmul(
        x8, torch.round(w / steps).to(torch.int8), steps, pertoken_scale=row_scale, output_dtype=torch.float32
    )
    assert torch.allclose(out, x @ w, atol=0.3)
    assert npu_quantize(torch.tensor([1.0, -9.0]), torch.tensor([0.5]), None, torch.qint8).tolist() == [2, -18]


def test_an_int64_scale_carries_float_bits(machine):
    x8, w8 = torch.ones(1, 4, dtype=torch.int8), torch.ones(4, 2, dtype=torch.int8)
    bits = torch.tensor([0.5, 2.0]).view(torch.int32).to(torch.int64)
    bias = torch.tensor([1, -1], dtype=torch.int32)
    assert npu_quant_matmul(x8, w8, bits, bias=bias, output_dtype=torch.float32).tolist() == [[2.5, 6.0]]
