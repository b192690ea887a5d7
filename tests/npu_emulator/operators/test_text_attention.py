import pytest
import torch

from npu_emulator.contract import NpuError
from npu_emulator.operators.attention_math import attend, causal_bias, spans
from npu_emulator.operators.fused_infer_attention import npu_fused_infer_attention_score
from npu_emulator.operators.kv_cache import npu_reshape_and_cache
from npu_emulator.operators.text_attention import (
    npu_flash_attention,
    npu_flash_attention_v3,
    npu_paged_attention,
    npu_paged_attention_splitfuse,
    npu_paged_attention_splitfuse_v2,
)

HEADS, KV_HEADS, WIDTH, BLOCK, SCALE = 4, 2, 32, 16, 0.2


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal but for the order of float32 additions."""
    return torch.allclose(a.float(), b.float(), atol=1e-3)


def nz(mask: torch.Tensor) -> torch.Tensor:
    """(R, C), both multiples of 16 -> (1, C/16, R, 16)."""
    rows, columns = mask.shape
    return mask.view(1, rows, columns // 16, 16).permute(0, 2, 1, 3).contiguous()


def causal_mask(size: int) -> torch.Tensor:
    return torch.full((size, size), float("-inf"), dtype=torch.float16).triu_(1)


def qkv(tokens: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = [(tokens, HEADS, WIDTH), (tokens, KV_HEADS, WIDTH), (tokens, KV_HEADS, WIDTH)]
    return tuple(torch.randn(shape, generator=generator).half() for shape in shapes)  # type: ignore[return-value]


def causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: list[int]) -> torch.Tensor:
    parts = [attend(q[b:e], k[b:e], v[b:e], SCALE, causal_bias(e - b, e - b)) for b, e in spans(lengths)]
    return torch.cat(parts).half()


def test_prefill_on_310p_with_an_nz_mask(machine):
    q, k, v = qkv(24)
    out = torch.empty_like(q)
    npu_flash_attention(q, k, v, nz(causal_mask(16)), torch.tensor([15, 9]), SCALE, HEADS, KV_HEADS, out)
    assert torch.equal(out, causal(q, k, v, [15, 9]))


def test_a_mask_that_does_not_cover_the_sequence_is_refused(machine):
    q, k, v = qkv(24)
    with pytest.raises(NpuError, match="longest sequence has 24"):
        npu_flash_attention(
            q, k, v, nz(causal_mask(16)), torch.tensor([24]), SCALE, HEADS, KV_HEADS, torch.empty_like(q)
        )


def test_an_nd_mask_is_refused_on_310p(machine):
    q, k, v = qkv(16)
    with pytest.raises(NpuError, match="N/16"):
        npu_flash_attention(q, k, v, causal_mask(16), torch.tensor([16]), SCALE, HEADS, KV_HEADS, torch.empty_like(q))


def test_compressed_mask_means_causal_for_any_length(machine):
    q, k, v = qkv(24)
    out = torch.empty_like(q)
    mask = nz(causal_mask(2048))
    npu_flash_attention_v3(q, k, v, mask, torch.tensor([24]), SCALE, HEADS, KV_HEADS, 3, out=out)
    assert torch.equal(out, causal(q, k, v, [24]))


def filled(chip_is_310p: bool, tokens: int, seed: int = 0) -> tuple[torch.Tensor, ...]:
    """q, k, v and caches holding k and v in blocks 2, 0, 1 of one sequence."""
    q, k, v = qkv(tokens, seed)
    shape = (3, KV_HEADS * WIDTH // 16, BLOCK, 16) if chip_is_310p else (3, BLOCK, KV_HEADS, WIDTH)
    key_cache, value_cache = torch.zeros(shape).half(), torch.zeros(shape).half()
    slots = torch.tensor([(2, 0, 1)[t // BLOCK] * BLOCK + t % BLOCK for t in range(tokens)], dtype=torch.int32)
    npu_reshape_and_cache(k, v, key_cache, value_cache, slots)
    return q, k, v, key_cache, value_cache


@pytest.mark.parametrize("chip", ["310P3", "910B3"])
def test_decode_reads_what_the_cache_was_given(machine, chip):
    machine(chip)
    q, k, v, key_cache, value_cache = filled(chip == "310P3", 40)
    out = torch.empty(1, HEADS, WIDTH).half()
    table, context = torch.tensor([[2, 0, 1]]), torch.tensor([40])
    npu_paged_attention(q[-1:], key_cache, value_cache, KV_HEADS, HEADS, SCALE, table, context, out)
    assert same(out[0], causal(q, k, v, [40])[-1])


def test_chunked_prefill_equals_prefill_at_once(machine):
    q, k, v, key_cache, value_cache = filled(True, 40)
    table, context, chunk = torch.tensor([[2, 0, 1]]), torch.tensor([40]), torch.tensor([7])
    want = causal(q, k, v, [40])[-7:]
    rows = causal_mask(48)[torch.arange(33, 40)]
    padded = torch.zeros(16, 48, dtype=torch.float16)
    padded[:7] = rows
    plain, compressed = torch.empty_like(q[-7:]), torch.empty_like(q[-7:])
    call = (q[-7:], key_cache, value_cache, table, context)
    npu_paged_attention_splitfuse(*call, nz(padded), chunk, KV_HEADS, HEADS, SCALE, plain)
    mask = torch.ones(2048, 2048).half().triu_(1) * -10000
    npu_paged_attention_splitfuse_v2(*call, mask, chunk, KV_HEADS, HEADS, SCALE, 5, out=compressed)
    assert same(plain, want)
    assert same(compressed, want)


def test_repeat_crash_is_for_prefill_on_cached_blocks_only(machine):
    q, _, _, key_cache, value_cache = filled(True, 40)
    mask = torch.ones(2048, 2048).half().triu_(1) * -10000

    def prefill(rows: int, context: int) -> None:
        table = torch.tensor([[2, 0, 1]])
        call = (q[:rows], key_cache, value_cache, table, torch.tensor([context]), mask, torch.tensor([rows]))
        npu_paged_attention_splitfuse_v2(*call, KV_HEADS, HEADS, SCALE, 5, out=torch.empty_like(q[:rows]))

    machine("310P3", "repeat-crash")
    prefill(40, 40)
    prefill(1, 40)
    with pytest.raises(NpuError, match="aicore") as crash:
        prefill(8, 40)
    assert crash.value.code == 507015


def test_block_times_head_beyond_16384_is_refused(machine):
    cache = torch.zeros(1, 256 // 16, 128, 16).half()
    q = torch.zeros(1, 1, 256).half()
    with pytest.raises(NpuError, match="32768"):
        npu_paged_attention(q, cache, cache, 1, 1, SCALE, torch.tensor([[0]]), torch.tensor([1]), torch.empty_like(q))


def test_int64_slots_are_refused(machine):
    _q, k, v, key_cache, value_cache = filled(True, 8)
    with pytest.raises(NpuError, match="int32"):
        npu_reshape_and_cache(k, v, key_cache, value_cache, torch.arange(8))


def causal_2048() -> torch.Tensor:
    return torch.ones(2048, 2048, dtype=torch.int8).triu_(1)


def test_fused_infer_attention_packed_and_paged(machine):
    machine("910B3")
    q, k, v, key_cache, value_cache = filled(False, 40)
    packed, _ = npu_fused_infer_attention_score(
        q, k, v, atten_mask=causal_2048(), actual_seq_lengths=[15, 40], actual_seq_lengths_kv=[15, 40], num_heads=HEADS,
        num_key_value_heads=KV_HEADS, scale=SCALE, input_layout="TND", sparse_mode=3,
    )  # fmt: skip
    assert torch.equal(packed, causal(q, k, v, [15, 25]))
    caches = [cache.view(3, BLOCK, -1) for cache in (key_cache, value_cache)]
    paged, _ = npu_fused_infer_attention_score(
        q[-7:], *caches, atten_mask=causal_2048(), actual_seq_lengths=[7], actual_seq_lengths_kv=[40], num_heads=HEADS,
        num_key_value_heads=KV_HEADS, scale=SCALE, input_layout="TND", sparse_mode=3, block_size=BLOCK,
        block_table=torch.tensor([[2, 0, 1]]),
    )  # fmt: skip
    assert same(paged, causal(q, k, v, [40])[-7:])


def test_fused_infer_attention_is_not_for_310p_and_knows_its_head_widths(machine):
    q, k, v = qkv(8)
    call = {
        "actual_seq_lengths": [8],
        "actual_seq_lengths_kv": [8],
        "num_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
    }
    with pytest.raises(NpuError, match="561002"):
        npu_fused_infer_attention_score(q, k, v, **call, input_layout="TND")
    machine("910B3", "fia-head-width")
    with pytest.raises(NpuError, match=r"queryD\(32\)"):
        npu_fused_infer_attention_score(q, k, v, **call, input_layout="TND")
