"""Attention of the language model: prefill with a mask, and the paged forms."""

import torch

from npu_emulator import faults
from npu_emulator.contract import operator
from npu_emulator.operators.attention_math import attend, causal_bias, from_nz, paged, spans
from npu_emulator.operators.kv_cache import check_block, is_nz_cache
from npu_emulator.operators.refusal import (
    AICORE_EXCEPTION,
    check_head_width,
    check_no_bf16,
    check_same_dtype,
    device_exception,
    is_310p,
    require_atb,
)

COMPRESSED = 2048
# mask_type of the compressed masks (vllm-ascend 0.23.0.post1 _310p/attention/attention_v1.py).
COMPRESSED_SELF_ATTENTION = 3
COMPRESSED_PAGED_ATTENTION = 5
# What a bfloat16 mask of ones is multiplied by (vllm-ascend 0.11.0 attention/attention_mask.py).
BF16_MASK_FACTOR = -10000.0


def _mask_size(mask: torch.Tensor) -> tuple[int, int]:
    """Rows and columns of a mask in its ND or NZ form."""
    return (mask.shape[2], mask.shape[1] * mask.shape[3]) if mask.dim() == 4 else (mask.shape[-2], mask.shape[-1])


def _mask_rows(mask: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """The first rows and columns of the additive mask, (B or 1, rows, columns), float32, from its ND or NZ form.

    Masks are made for the longest sequence that may come; only what is asked for is converted.
    """
    if mask.dim() == 4:
        cut = from_nz(mask[:, : -(-columns // mask.shape[3]), :rows])[..., :columns]
    else:
        cut = mask.reshape(-1, *mask.shape[-2:])[:, :rows, :columns]
    wide = cut.to(torch.float32)
    return wide * BF16_MASK_FACTOR if mask.dtype == torch.bfloat16 else wide


def _check_prefill(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, lengths: list[int]
) -> None:
    operation = "SelfAttentionOperation"
    check_no_bf16("FlashAttention", query, key, value)
    check_same_dtype("FlashAttention", query, key, value)
    check_head_width(operation, query.shape[-1])
    if is_310p():
        require_atb(
            operation, query.shape[0] == key.shape[0], f"query has {query.shape[0]} rows and key {key.shape[0]}"
        )
        require_atb(
            operation, mask.dim() == 4 and mask.shape[-1] == 16, f"mask {tuple(mask.shape)} is not (1, N/16, N, 16)"
        )
        require_atb(operation, query.dtype == mask.dtype, f"query is {query.dtype}, the mask {mask.dtype}")
    require_atb(
        operation, sum(lengths) <= query.shape[0], f"the lengths sum to {sum(lengths)}, there are {query.shape[0]} rows"
    )


@operator(
    "_npu_flash_attention",
    either=("seq_len",),
    source="vllm-ascend 0.18.0 _310p/attention: fp16 additive NZ mask, the last length enlarged when rows are padded",
)
def npu_flash_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor,
    seq_len: torch.Tensor,
    scale_value: float,
    num_heads: int,
    num_kv_heads: int,
    out: torch.Tensor,
) -> None:
    """Prefill of packed sequences (T, H, D); seq_len lengths; mask (1 or B, N/16, N, 16) or (N, N); writes out."""
    lengths = [int(n) for n in seq_len.tolist()]
    _check_prefill(query, key, value, mask, lengths)
    longest, known = max(lengths, default=0), min(_mask_size(mask))
    require_atb(
        "SelfAttentionOperation", known >= longest, f"mask for {known} tokens, the longest sequence has {longest}"
    )
    masks = _mask_rows(mask, longest, longest)
    for index, (begin, end) in enumerate(spans(lengths)):
        if end > begin:
            bias = masks[index % masks.shape[0], : end - begin, : end - begin]
            out[begin:end].copy_(attend(query[begin:end], key[begin:end], value[begin:end], scale_value, bias))


@operator(
    "_npu_flash_attention_v3",
    either=("seq_len",),
    since="2.10.0.post4",
    source="torch_npu 2.10.0.post4 schema (absent in 2.9.0); vllm-ascend 0.23.0.post1: mask_type 3 with a "
    "2048x2048 compressed mask",
)
def npu_flash_attention_v3(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor,
    seq_len: torch.Tensor,
    scale_value: float,
    num_heads: int,
    num_kv_heads: int,
    mask_type: int = COMPRESSED_SELF_ATTENTION,
    *,
    out: torch.Tensor,
) -> None:
    """As `_npu_flash_attention`, of any length: a triangular 2048x2048 mask means causal, a mask of zeros none."""
    lengths = [int(n) for n in seq_len.tolist()]
    _check_prefill(query, key, value, mask, lengths)
    require_atb("SelfAttentionOperation", mask_type == COMPRESSED_SELF_ATTENTION, f"mask_type {mask_type}")
    require_atb(
        "SelfAttentionOperation",
        _mask_size(mask) == (COMPRESSED, COMPRESSED),
        f"mask {_mask_size(mask)} is not 2048x2048",
    )
    causal = bool(_mask_rows(mask, 1, 2)[0, 0, 1] < 0)
    for begin, end in spans(lengths):
        if end > begin:
            bias = causal_bias(end - begin, end - begin) if causal else None
            out[begin:end].copy_(attend(query[begin:end], key[begin:end], value[begin:end], scale_value, bias))


def _crash_on_cached_prefill(query_lengths: list[int], context_lengths: list[int]) -> None:
    hit = any(1 < q < c for q, c in zip(query_lengths, context_lengths, strict=True))
    if hit and faults.active("repeat-crash"):
        raise device_exception(AICORE_EXCEPTION, "PagedAttentionMaskNdKernel", "aicore")


def _attend_cached(
    query: torch.Tensor,
    caches: tuple[torch.Tensor, torch.Tensor],
    heads: int,
    table: torch.Tensor,
    lengths: tuple[list[int], list[int]],
    scale: float,
    mask: torch.Tensor | None,
    out: torch.Tensor,
) -> None:
    """Each sequence's rows of `query` against its cached keys; `mask` (rows, columns) additive or None for causal."""
    nz = is_nz_cache(caches[0])
    for index, (begin, end) in enumerate(spans(lengths[0])):
        context = lengths[1][index]
        if end == begin or context == 0:
            continue
        key, value = (paged(cache, table[index].tolist(), context, heads, nz) for cache in caches)
        bias = causal_bias(end - begin, context) if mask is None else mask[begin:end, :context]
        out[begin:end].copy_(attend(query[begin:end], key, value, scale, bias))


def _check_paged(query: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor) -> None:
    check_no_bf16("PagedAttention", query, key_cache, value_cache)
    check_same_dtype("PagedAttention", query, key_cache, value_cache)
    check_head_width("PagedAttentionOperation", query.shape[-1])
    check_block(key_cache, query.shape[-1])


@operator(
    "_npu_paged_attention",
    either=("context_lens",),
    source="torch_npu schema; vllm-ascend 0.18.0: one query a sequence; block size * head size <= 16384 on 310P",
)
def npu_paged_attention(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    num_kv_heads: int,
    num_heads: int,
    scale_value: float,
    block_table: torch.Tensor,
    context_lens: torch.Tensor,
    out: torch.Tensor,
    *,
    workspace: torch.Tensor | None = None,
) -> None:
    """Decode: query (B, H, D), one row a sequence, against its context; writes out."""
    _check_paged(query, key_cache, value_cache)
    contexts = [int(n) for n in context_lens.tolist()]
    _attend_cached(
        query,
        (key_cache, value_cache),
        num_kv_heads,
        block_table,
        ([1] * len(contexts), contexts),
        scale_value,
        None,
        out,
    )


@operator("_npu_paged_attention_get_workspace", source="torch_npu schema; the size of the workspace is not emulated")
def npu_paged_attention_get_workspace(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    num_kv_heads: int,
    num_heads: int,
    scale_value: float,
    block_table: torch.Tensor,
    context_lens: torch.Tensor,
    out: torch.Tensor,
) -> torch.Tensor:
    """One byte."""
    return torch.empty(1, dtype=torch.uint8)


@operator(
    "_npu_paged_attention_splitfuse",
    either=("context_lens",),
    host=("seq_len",),
    source="torch_npu schema; vllm-ascend 0.23.0.post1 _310p/attention/metadata_builder.py: query lengths on the host",
)
def npu_paged_attention_splitfuse(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_table: torch.Tensor,
    context_lens: torch.Tensor,
    mask: torch.Tensor,
    seq_len: torch.Tensor,
    num_kv_heads: int,
    num_heads: int,
    scale_value: float,
    out: torch.Tensor,
) -> None:
    """Chunked prefill: query (T, H, D), seq_len query lengths; mask (1, N/16, T padded, 16), a row a query; writes
    out.
    """
    _check_paged(query, key_cache, value_cache)
    queries, contexts = ([int(n) for n in t.tolist()] for t in (seq_len, context_lens))
    _crash_on_cached_prefill(queries, contexts)
    require_atb(
        "PagedAttentionOperation",
        sum(queries) == query.shape[0],
        f"the lengths sum to {sum(queries)}, there are {query.shape[0]} rows",
    )
    known = _mask_size(mask)
    require_atb(
        "PagedAttentionOperation",
        known[0] >= query.shape[0] and known[1] >= max(contexts),
        f"mask {known} is too small",
    )
    rows = _mask_rows(mask, query.shape[0], max(contexts))[0]
    _attend_cached(
        query, (key_cache, value_cache), num_kv_heads, block_table, (queries, contexts), scale_value, rows, out
    )


@operator(
    "_npu_paged_attention_splitfuse_v2",
    either=("context_lens",),
    host=("seq_len",),
    since="2.10.0.post4",
    source="torch_npu 2.10.0.post4 schema (absent in 2.9.0); vllm-ascend 0.23.0.post1: mask_type 5, ND mask "
    "2048x2048 of -10000",
)
def npu_paged_attention_splitfuse_v2(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_table: torch.Tensor,
    context_lens: torch.Tensor,
    mask: torch.Tensor,
    seq_len: torch.Tensor,
    num_kv_heads: int,
    num_heads: int,
    scale_value: float,
    mask_type: int = COMPRESSED_PAGED_ATTENTION,
    *,
    out: torch.Tensor,
) -> None:
    """As `_npu_paged_attention_splitfuse`, causal by a compressed mask."""
    _check_paged(query, key_cache, value_cache)
    queries, contexts = ([int(n) for n in t.tolist()] for t in (seq_len, context_lens))
    _crash_on_cached_prefill(queries, contexts)
    require_atb("PagedAttentionOperation", mask_type == COMPRESSED_PAGED_ATTENTION, f"mask_type {mask_type}")
    require_atb(
        "PagedAttentionOperation",
        tuple(mask.shape) == (COMPRESSED, COMPRESSED),
        f"mask {tuple(mask.shape)} is not 2048x2048",
    )
    _attend_cached(
        query, (key_cache, value_cache), num_kv_heads, block_table, (queries, contexts), scale_value, None, out
    )


@operator(
    "_npu_flash_attention_qlens",
    either=("seq_len", "context_lens"),
    source="torch_npu 2.7.1 schema; vllm-ascend 0.11.0 attention/attention_v1.py: prefill that hits the prefix cache",
)
def npu_flash_attention_qlens(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_table: torch.Tensor,
    mask: torch.Tensor,
    seq_len: torch.Tensor,
    context_lens: torch.Tensor,
    num_kv_heads: int,
    num_heads: int,
    scale_value: float,
    out: torch.Tensor,
) -> None:
    """Prefill of query (T, H, D) against the paged cache, causal; writes out."""
    _check_paged(query, key_cache, value_cache)
    queries, contexts = ([int(n) for n in t.tolist()] for t in (seq_len, context_lens))
    _crash_on_cached_prefill(queries, contexts)
    _attend_cached(
        query, (key_cache, value_cache), num_kv_heads, block_table, (queries, contexts), scale_value, None, out
    )
