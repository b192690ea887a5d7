"""Attention over packed sequences without a mask: what the vision tower calls."""

from collections.abc import Sequence

import torch

from npu_emulator import faults
from npu_emulator.contract import operator
from npu_emulator.operators.attention_math import attend, causal_bias, differences, spans
from npu_emulator.operators.refusal import (
    TILING_FAILED,
    check_head_width,
    check_no_bf16,
    check_same_dtype,
    is_310p,
    refuse_aclnn,
    require_aclnn,
    require_atb,
)

APPROXIMATE = 2
INT_MAX = 2147483647
# The published port passes a band of 65535 on 310P; the documentation allows the default only.
WIDE_BAND = 65535


def _check_packed(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, out: torch.Tensor, lengths: list[int]
) -> None:
    operation = "SelfAttentionOperation"
    check_no_bf16("FlashAttention", query, key, value)
    require_atb(operation, query.dim() == 3, f"query has shape {tuple(query.shape)}, not (T, H, D)")
    if is_310p():
        require_atb(
            operation, query.shape[0] == key.shape[0], f"query has {query.shape[0]} rows and key {key.shape[0]}"
        )
    check_head_width(operation, query.shape[-1])
    require_atb(operation, query.shape == out.shape, f"out has shape {tuple(out.shape)}, query {tuple(query.shape)}")
    require_atb(operation, min(lengths, default=0) >= 0, f"negative length in {lengths[:8]}")
    require_atb(
        operation, sum(lengths) == query.shape[0], f"the lengths sum to {sum(lengths)}, there are {query.shape[0]} rows"
    )


def _coarse(scores: torch.Tensor) -> torch.Tensor:
    """`scores` with three bits of mantissa: the assumed loss of the approximate kernel."""
    mantissa, exponent = torch.frexp(scores)
    return torch.ldexp(torch.round(mantissa * 8) / 8, exponent)


def _attend_coarsely(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    repeat = q.shape[1] // k.shape[1]
    wide = [t.to(torch.float32).transpose(0, 1) for t in (q, k, v)]
    k, v = (t.repeat_interleave(repeat, 0) for t in wide[1:])
    scores = _coarse(wide[0] @ k.transpose(1, 2) * scale)
    return (torch.softmax(scores, -1) @ v).transpose(0, 1)


def _packed(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    lengths: list[int],
    scale: float,
    out: torch.Tensor,
    coarse: bool,
) -> None:
    if faults.active("unpad-borders"):
        lengths = [sum(lengths)]
    after_zero = False
    for begin, end in spans(lengths):
        if begin == end:
            after_zero = True
            continue
        q, k, v = query[begin:end], key[begin:end], value[begin:end]
        if after_zero and faults.active("unpad-zero-length"):
            v = v.roll(max(1, (end - begin) // 2), dims=0)
        result = _attend_coarsely(q, k, v, scale) if coarse else attend(q, k, v, scale)
        out[begin:end].copy_(result)


@operator(
    "_npu_flash_attention_unpad",
    host=("seq_len",),
    source="torch_npu schema; vllm-ascend 0.18.0 _310p/ops/mm_encoder_attention.py: lengths on the CPU, "
    "otherwise it breaks down",
)
def npu_flash_attention_unpad(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    seq_len: torch.Tensor,
    scale_value: float,
    num_heads: int,
    num_kv_heads: int,
    out: torch.Tensor,
) -> None:
    """Full attention within each of the packed sequences; all of (T, H, D), seq_len (B,) lengths; writes out."""
    lengths = seq_len.tolist()
    _check_packed(query, key, value, out, lengths)
    require_atb(
        "SelfAttentionOperation",
        query.shape[1] == num_heads and key.shape[1] == num_kv_heads,
        "the number of heads differs",
    )
    _packed(query, key, value, lengths, scale_value, out, coarse=False)


@operator(
    "_npu_flash_attention_unpad_v2",
    host=("seq_len",),
    since="2.10.0.post4",
    source="torch_npu 2.10.0.post4 schema (absent in 2.9.0 and 2.7.1); vllm-ascend 0.23.0.post1 calls "
    "kernel_type 2 approximate",
)
def npu_flash_attention_unpad_v2(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    seq_len: torch.Tensor,
    scale_value: float,
    num_heads: int,
    num_kv_heads: int,
    kernel_type: int = 0,
    *,
    out: torch.Tensor,
) -> None:
    """As `_npu_flash_attention_unpad`, with a choice of kernel."""
    lengths = seq_len.tolist()
    _check_packed(query, key, value, out, lengths)
    require_atb(
        "SelfAttentionOperation",
        query.shape[1] == num_heads and key.shape[1] == num_kv_heads,
        "the number of heads differs",
    )
    coarse = kernel_type == APPROXIMATE and faults.active("unpad-approximate")
    _packed(query, key, value, lengths, scale_value, out, coarse)


@operator(
    "npu_fusion_attention",
    host=("actual_seq_qlen", "actual_seq_kvlen"),
    source="torch_npu 2.10.0.post4 documentation: TND wants cumulative lengths on the host; A2 and A3 only",
)
def npu_fusion_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    head_num: int,
    input_layout: str,
    pse: torch.Tensor | None = None,
    padding_mask: torch.Tensor | None = None,
    atten_mask: torch.Tensor | None = None,
    scale: float = 1.0,
    keep_prob: float = 1.0,
    pre_tockens: int = INT_MAX,
    next_tockens: int = INT_MAX,
    inner_precise: int = 0,
    prefix: Sequence[int] | None = None,
    actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None,
    sparse_mode: int = 0,
    **unused: object,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, int, int, int]:
    """Attention in TND layout: query (T, H, D), lengths as ends (2, 4, 6), no mask (mode 0) or causal (modes 2 and
    3).
    """
    kernel = "FlashAttentionVarLenScore"
    require_aclnn(kernel, not is_310p(), "this product is not supported", TILING_FAILED)
    check_same_dtype(kernel, query, key, value)
    require_aclnn(kernel, input_layout == "TND", f"layout {input_layout!r} is not emulated")
    require_aclnn(
        kernel, pse is None and prefix is None and keep_prob == 1.0, "pse, prefix and dropout are not emulated"
    )
    if actual_seq_qlen is None or actual_seq_kvlen is None:
        refuse_aclnn(kernel, "TND needs actual_seq_qlen and actual_seq_kvlen")
    q_ends, k_ends = ([int(end) for end in ends] for ends in (actual_seq_qlen or (), actual_seq_kvlen or ()))
    require_aclnn(
        kernel,
        len(q_ends) == len(k_ends) and q_ends[-1:] == [query.shape[0]] and k_ends[-1:] == [key.shape[0]],
        f"ends {q_ends[-3:]} {k_ends[-3:]} against {query.shape[0]} and {key.shape[0]} rows",
    )
    require_aclnn(kernel, min(differences(q_ends) + differences(k_ends)) >= 0, "the ends must not decrease")
    require_aclnn(kernel, query.shape[1] == head_num, f"head_num {head_num}, query has {query.shape[1]}")
    out = torch.zeros_like(query)
    for (qb, qe), (kb, ke) in zip(spans(differences(q_ends)), spans(differences(k_ends)), strict=True):
        bias = causal_bias(qe - qb, ke - kb) if sparse_mode in (2, 3) else None
        if qe > qb:
            out[qb:qe] = attend(query[qb:qe], key[kb:ke], value[kb:ke], scale, bias).to(out.dtype)
    empty = query.new_empty(0)
    return out, empty, empty, empty, 0, 0, 0


@operator(
    "npu_prompt_flash_attention",
    host=("actual_seq_lengths", "actual_seq_lengths_kv"),
    source="torch_npu 2.10.0.post4 documentation: on Atlas inference chips float16, no lengths, no sparse "
    "mode, default band only",
)
def npu_prompt_flash_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    padding_mask: torch.Tensor | None = None,
    atten_mask: torch.Tensor | None = None,
    pse_shift: torch.Tensor | None = None,
    actual_seq_lengths: Sequence[int] | None = None,
    num_heads: int = 1,
    scale_value: float = 1.0,
    pre_tokens: int = INT_MAX,
    next_tokens: int = 0,
    input_layout: str = "BSH",
    num_key_value_heads: int = 0,
    actual_seq_lengths_kv: Sequence[int] | None = None,
    sparse_mode: int = 0,
    **unused: object,
) -> torch.Tensor:
    """Attention of each batch entry in itself; BSH (B, S, H*D), BSND (B, S, H, D) or BNSD (B, H, S, D)."""
    kernel = "PromptFlashAttentionV3"
    check_no_bf16(kernel, query, key, value)
    check_same_dtype(kernel, query, key, value)
    require_aclnn(kernel, input_layout in ("BSH", "BSND", "BNSD"), f"layout {input_layout!r} is not emulated")
    require_aclnn(kernel, pse_shift is None and atten_mask is None, "pse_shift and atten_mask are not emulated")
    if is_310p():
        require_aclnn(kernel, query.dtype == torch.float16, "float16 only on this product")
        require_aclnn(
            kernel,
            actual_seq_lengths is None and actual_seq_lengths_kv is None,
            "actual_seq_lengths is not supported on this product",
        )
        require_aclnn(kernel, num_key_value_heads in (0, num_heads), "num_key_value_heads must be 0 on this product")
        require_aclnn(
            kernel,
            pre_tokens in (WIDE_BAND, INT_MAX) and next_tokens in (0, WIDE_BAND, INT_MAX),
            "pre_tokens and next_tokens must be the defaults",
        )
        require_aclnn(kernel, sparse_mode == 0, "sparse_mode must be 0 on this product")
    q, k, v = (_as_bsnd(t, input_layout, num_heads) for t in (query, key, value))
    if faults.active("head-multiple-of-16"):
        require_aclnn(kernel, q.shape[-1] % 16 == 0, f"D {q.shape[-1]} is no multiple of 16", TILING_FAILED)
    out = torch.stack([attend(q[b], k[b], v[b], scale_value) for b in range(q.shape[0])]).to(query.dtype)
    return out.transpose(1, 2).contiguous() if input_layout == "BNSD" else out.reshape(query.shape)


def _as_bsnd(x: torch.Tensor, layout: str, heads: int) -> torch.Tensor:
    if layout == "BSH":
        return x.unflatten(-1, (heads, -1))
    return x.transpose(1, 2) if layout == "BNSD" else x
