"""Replays three ways: a right operator passes, each planted fault fails with its reason."""

import itertools

import pytest
import torch

from ascend_vl.verify import operators
from ascend_vl.verify.summaries import relative_difference
from ascend_vl.verify.towers import summarise, together_against_alone, wrap

CONFIG = {
    "vision_config": {"hidden_size": 144, "num_heads": 2},
    "text_config": {
        "head_dim": 32,
        "rope_theta": 10000.0,
        "rope_scaling": {"mrope_section": [6, 5, 5]},
        "rms_norm_eps": 1e-6,
    },
}


class MMEncoderAttention(torch.nn.Module):
    pass


class AscendMMEncoderAttention310(MMEncoderAttention):
    pass


class ApplyRotaryEmb(torch.nn.Module):
    is_neox_style = True


class MRotaryEmbedding(torch.nn.Module):
    pass


class RowParallelLinear(torch.nn.Module):
    pass


class LinearBase(RowParallelLinear):
    pass


def noise(*shape, dtype=torch.float16, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def verdict(module, output, *args, weights=None, config=CONFIG, **kwargs):
    call = {"args": list(args), "kwargs": kwargs, "output": output}
    return operators.judge("block.op", module, call, weights or {}, config)


def vision_inputs():
    q, k, v = (3 * noise(1, 8, 2, 72, seed=seed) for seed in (1, 2, 3))
    return {"query": q, "key": k, "value": v, "cu_seqlens": torch.tensor([0, 4, 8])}


def attend(inputs, bounds):
    q, k, v = (inputs[name][0].transpose(0, 1) for name in ("query", "key", "value"))
    pieces = [
        torch.nn.functional.scaled_dot_product_attention(q[:, a:b], k[:, a:b], v[:, a:b])
        for a, b in itertools.pairwise(bounds)
    ]
    return torch.cat(pieces, 1).transpose(0, 1)[None]


def test_platform_classes_count_as_the_layers_they_subclass():
    assert operators.kind_of(AscendMMEncoderAttention310()) == "vision attention"
    assert operators.kind_of(LinearBase()) == "linear"
    assert operators.kind_of(torch.nn.Dropout()) is None


def test_right_attention_passes_and_mixing_pictures_fails():
    inputs = vision_inputs()
    good = verdict(AscendMMEncoderAttention310(), attend(inputs, [0, 4, 8]), **inputs)
    assert good["verdict"] == "PASS", good
    mixed = verdict(AscendMMEncoderAttention310(), attend(inputs, [0, 8]), **inputs)
    assert mixed["verdict"] == "FAIL"
    assert mixed["target_error"] > 0.1
    assert "query: float16[1, 8, 2, 72]" in mixed["inputs"]


def test_wrong_borders_handed_to_a_right_operator_fail():
    inputs = {**vision_inputs(), "cu_seqlens": torch.tensor([0, 2, 8])}
    obeyed = attend(inputs, [0, 2, 8])
    assert verdict(AscendMMEncoderAttention310(), obeyed, **inputs)["verdict"] == "PASS"
    known = {**CONFIG, "borders": [0, 4, 8]}
    assert verdict(AscendMMEncoderAttention310(), obeyed, config=known, **inputs)["verdict"] == "FAIL"


def test_lengths_are_read_as_well_as_offsets():
    inputs = vision_inputs()
    output = attend(inputs, [0, 4, 8])
    inputs["cu_seqlens"] = torch.tensor([0, 4, 4])
    assert verdict(AscendMMEncoderAttention310(), output, **inputs)["verdict"] == "PASS"


def test_approximate_attention_fails():
    inputs = vision_inputs()
    coarse = {**inputs, "query": (inputs["query"] * 8).round() / 8}
    assert verdict(MMEncoderAttention(), attend(coarse, [0, 4, 8]), **inputs)["verdict"] == "FAIL"


def rotary_inputs():
    angles = torch.arange(8)[:, None] * torch.linspace(0, 1, 36)
    return noise(1, 8, 2, 72), angles.cos().half(), angles.sin().half()


def test_rotary_cast_up_and_rotary_cast_badly_fail():
    x, cos, sin = rotary_inputs()
    right = operators.rotate(x, cos, sin)
    assert verdict(ApplyRotaryEmb(), right, x, cos, sin)["verdict"] == "PASS"
    assert "dtype float32" in verdict(ApplyRotaryEmb(), right.float(), x, cos, sin)["why"]
    badly = operators.rotate(x, cos.bfloat16().half(), sin.bfloat16().half())
    assert verdict(ApplyRotaryEmb(), badly, x, cos, sin)["verdict"] == "FAIL"


@pytest.mark.parametrize(("section", "expected"), [([6, 5, 5], "PASS"), ([8, 4, 4], "FAIL")])
def test_mrope_with_another_section_fails(section, expected):
    positions = torch.stack([torch.arange(9) * step for step in (1, 2, 3)])
    query = noise(9, 64, dtype=torch.float32)
    angles = operators.mrope_angles(positions, 32, 10000.0, section)
    output = operators.rotate(query.reshape(9, 2, 32), angles.cos().float(), angles.sin().float()).reshape(9, 64)
    assert verdict(MRotaryEmbedding(), (output, None), positions, query, query)["verdict"] == expected


def test_interleaved_angles_by_hand():
    # 4 pairs, section [2, 1, 1]: pairs go t, h, w, t.
    positions = torch.tensor([[1], [10], [100]])
    angles = operators.mrope_angles(positions, 8, 16.0, [2, 1, 1])
    assert angles.tolist() == [[1.0, 5.0, 25.0, 0.125]]


def test_overflow_is_called_overflow():
    x, weight = noise(4, 16), 20000 * noise(8, 16, dtype=torch.float32).sign()
    output = torch.full((4, 8), float("inf"), dtype=torch.float16)
    found = verdict(LinearBase(), output, 100 * x.abs(), weights={"weight": weight.half()})
    assert found["verdict"] == "FAIL" and found["why"].startswith("overflow")
    plain = verdict(LinearBase(), output, x * 1e-3, weights={"weight": weight.half() * 1e-3})
    assert plain["why"] == "not finite where the exact value is"


def test_unknown_operators_are_inconclusive_never_passed():
    assert verdict(torch.nn.Dropout(), noise(2, 2), noise(2, 2))["verdict"] == "INCONCLUSIVE"
    assert verdict(LinearBase(), noise(2, 2), noise(2, 2))["verdict"] == "INCONCLUSIVE"


def test_attention_written_out_is_pytorchs():
    # The reference itself against a second implementation, on peaked inputs.
    q, k, v = (4 * noise(7, heads, 16, dtype=torch.float64, seed=heads) for heads in (4, 2, 2))
    ours = operators.attention(q, k, v, 0.25, causal=True)
    theirs = torch.nn.functional.scaled_dot_product_attention(
        *(t.transpose(0, 1) for t in (q, k, v)), is_causal=True, scale=0.25, enable_gqa=True
    ).transpose(0, 1)
    assert torch.allclose(ours, theirs, atol=1e-12)


class Tower(torch.nn.Module):
    """Two linear layers over patches of 4; `mixes` lets the first picture leak into the others."""

    spatial_merge_size = 1
    deepstack_visual_indexes = (0,)

    def __init__(self, mixes=False, swaps=False):
        super().__init__()
        self.patch_embed = torch.nn.Linear(4, 6, bias=False)
        self.mixes, self.swaps = mixes, swaps

    def forward(self, pixels, grid_thw):
        hidden = self.patch_embed(pixels)
        if self.mixes and len(grid_thw) > 1:
            hidden = hidden + 1e-3 * hidden.mean(0)
        if self.swaps and len(grid_thw) > 1:
            hidden = torch.cat(hidden.split(4)[::-1])
        return torch.cat([hidden, hidden * 2], 1)


def pictures(count=3):
    return [{"grid": [1, 2, 2], "pixel_values": noise(4, 4, dtype=torch.float32, seed=i)} for i in range(count)]


def test_pictures_together_give_what_each_gives_alone():
    found = together_against_alone(Tower(), pictures())
    assert found["self_agreement"]["equal"] and found["together"]["equal"] and found["reversed"]["equal"]
    assert found["nearest"] == [0, 1, 2]


def test_a_leak_between_pictures_and_a_swap_are_seen():
    leak = together_against_alone(Tower(mixes=True), pictures())
    assert leak["self_agreement"]["equal"] and not leak["together"]["equal"]
    swap = together_against_alone(Tower(swaps=True), pictures())
    assert swap["nearest"] == [2, 1, 0]


def test_wrapping_a_forward_leaves_no_trace():
    module = torch.nn.Linear(2, 2)
    before = dict(vars(module))
    undo = wrap(module, lambda forward, x: forward(x) + 1)
    assert torch.allclose(module(torch.zeros(1, 2)), module.bias + 1)
    undo()
    assert vars(module).keys() == before.keys()


@pytest.mark.parametrize("scale", [1e-6, 1e-2, 0.3])
def test_the_sketch_estimates_the_relative_difference(scale):
    base = noise(700, 96, dtype=torch.float32)
    other = base + scale * noise(700, 96, dtype=torch.float32, seed=9)
    exact = float((other - base).norm() / base.norm())
    assert relative_difference(summarise(base), summarise(other)) == pytest.approx(exact, rel=0.4)
    one_row = base.clone()
    one_row[350] += 1.0
    exact = float((one_row - base).norm() / base.norm())
    assert relative_difference(summarise(base), summarise(one_row)) == pytest.approx(exact, rel=0.4)


def test_summaries_of_other_shapes_and_of_nan_differ_without_limit():
    base = summarise(noise(4, 4))
    assert relative_difference(base, summarise(noise(4, 4))) == 0
    assert relative_difference(base, summarise(noise(4, 8))) == float("inf")
    assert relative_difference(base, summarise(noise(4, 4) * float("nan"))) == float("inf")


def test_a_text_layer_gives_the_sum_of_its_pair_and_the_last_norm_its_first():
    from ascend_vl.verify.points import stream

    pair = torch.ones(2, 3), torch.full((2, 3), 2.0)
    assert torch.equal(stream(pair, layer=True), torch.full((2, 3), 3.0, dtype=torch.float64))
    assert torch.equal(stream(pair, layer=False), torch.ones(2, 3))
    assert torch.equal(stream(torch.ones(2, 3), layer=True), torch.ones(2, 3))


def test_a_saved_call_is_recomputed_by_its_kind(tmp_path):
    from ascend_vl.verify.replay import plain_call

    positions = torch.stack([torch.arange(9)] * 3)
    query = noise(9, 64, dtype=torch.float32)
    angles = operators.mrope_angles(positions, 32, 10000.0, [6, 5, 5])
    output = operators.rotate(query.reshape(9, 2, 32), angles.cos().float(), angles.sin().float()).reshape(9, 64)
    call = {"args": [positions, query, query], "kwargs": {}, "output": (output, None)}
    found = operators.judge("x", MRotaryEmbedding(), call, {}, CONFIG)
    torch.save({"weights": {}, "config": CONFIG, **plain_call(call)}, tmp_path / "inputs.pt")
    saved = torch.load(tmp_path / "inputs.pt", weights_only=True)
    plain = operators.by_kind(found["kind"], saved)
    again = operators.weigh(plain(torch.float64), plain(torch.float32), saved["output"], None)
    assert again["why"] == found["why"]


def test_values_that_are_not_finite_stray_even_where_the_reference_does_too():
    from ascend_vl.verify.stage_reference import strays_far

    assert strays_far({"engine": float("inf"), "reference": float("inf")}, 1e-3)
    assert not strays_far({"engine": 2e-3, "reference": 1e-3}, 1e-3)
    assert strays_far({"engine": 3.1e-3, "reference": 1e-3}, 1e-3)


def test_borders_of_all_pictures_do_not_cut_a_call_that_has_one_of_them():
    inputs = vision_inputs()
    one = {name: inputs[name][:, :4] for name in ("query", "key", "value")} | {"cu_seqlens": torch.tensor([0, 4])}
    config = {**CONFIG, "borders": [0, 2, 6]}
    assert verdict(MMEncoderAttention(), attend(one, [0, 4]), config=config, **one)["verdict"] == "PASS"


def test_a_rotary_operator_with_whole_tables_is_known():
    x, cos, sin = rotary_inputs()
    right = operators.rotate(x, cos, sin)
    whole = [torch.cat((table, table), -1)[None, :, None] for table in (cos, sin)]
    assert verdict(ApplyRotaryEmb(), right, x, *whole)["verdict"] == "PASS"


def test_functions_of_the_library_are_seen_where_a_block_calls_them_itself(monkeypatch):
    import sys
    import types

    from ascend_vl.verify import replay

    def unpad(query, key, value, seq_len, scale_value, num_heads, num_kv_heads, out):
        out.copy_(query * 2)

    library = types.SimpleNamespace(_npu_flash_attention_unpad=unpad)
    monkeypatch.setitem(sys.modules, "torch_npu", library)

    class Block(torch.nn.Module):
        def forward(self, x):
            out = torch.empty_like(x)
            lengths = torch.tensor([0, 4, 4])
            library._npu_flash_attention_unpad(
                query=x, key=x, value=x, seq_len=lengths, scale_value=1.0, num_heads=2, num_kv_heads=2, out=out
            )
            return out

    model = torch.nn.Module()
    model.visual = torch.nn.Module()
    model.visual.blocks = torch.nn.ModuleList([Block(), Block()])
    watch = replay.BlockWatch(model, "visual.blocks.1")
    for block in model.visual.blocks:
        block(noise(8, 2, 72))
    watch.stop()
    assert library._npu_flash_attention_unpad is unpad
    ((name, module, call),) = watch.calls
    assert name == "visual.blocks.1._npu_flash_attention_unpad"
    found = operators.judge(name, module, call, {}, CONFIG)
    assert found["operator"] == "vision attention (_npu_flash_attention_unpad)"
    assert found["verdict"] == "FAIL" and "query: float16[8, 2, 72]" in found["inputs"]
