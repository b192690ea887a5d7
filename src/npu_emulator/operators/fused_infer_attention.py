"""`npu_fused_infer_attention_score`, the attention of 910B."""

from collections.abc import Sequence

import torch

from npu_emulator import faults
from npu_emulator.contract import operator
from npu_emulator.operators.attention_math import attend, causal_bias, differences, paged, spans
from npu_emulator.operators.refusal import TILING_FAILED, check_same_dtype, is_310p, refuse_aclnn, require_aclnn

KERNEL = "FusedInferAttentionScoreV3"
INT_MAX = 2147483647
TND_WIDTHS = (64, 128, 192)
SOURCE = (
    "torch_npu 2.10.0.post4 documentation: A2 and A3 only; TND lengths cumulative; sparse modes 2-4 with "
    "a 2048x2048 mask"
)


def _bias(mode: int, mask: torch.Tensor | None, queries: int, keys: int) -> torch.Tensor | None:
    """None (mode 0 without a mask) or the causal bias of mode 3, bottom right aligned."""
    if mode == 0 and mask is None:
        return None
    require_aclnn(KERNEL, mode == 3, f"sparse mode {mode} is not emulated")
    if mask is None:
        refuse_aclnn(KERNEL, "sparse mode 3 needs a mask")
    else:
        require_aclnn(KERNEL, tuple(mask.shape[-2:]) == (2048, 2048), f"mask {tuple(mask.shape)} is not 2048x2048")
        require_aclnn(KERNEL, mask.dtype in (torch.int8, torch.uint8, torch.bool), f"mask dtype {mask.dtype}")
    return causal_bias(queries, keys)


def _check_tnd(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, heads: int, ends: Sequence[int]) -> None:
    require_aclnn(
        KERNEL, query.dim() == 3 and query.shape[1] == heads, f"query {tuple(query.shape)} is not (T, {heads}, D)"
    )
    if faults.active("fia-head-width"):
        width = query.shape[-1]
        reason = f"When layout is TND, queryD({width}), keyD and valueD must be same equal 192/128/64"
        require_aclnn(KERNEL, width in TND_WIDTHS, reason, TILING_FAILED)
    require_aclnn(
        KERNEL,
        bool(ends) and ends[-1] == query.shape[0],
        f"the last of actual_seq_lengths is {ends[-1:]}, there are {query.shape[0]} rows",
    )
    require_aclnn(KERNEL, min(differences(ends)) >= 0, "actual_seq_lengths must not decrease")
    require_aclnn(KERNEL, key.is_contiguous() and value.is_contiguous(), "key and value must be contiguous")


@operator("npu_fused_infer_attention_score", host=("actual_seq_lengths", "actual_seq_lengths_kv"), source=SOURCE)
def npu_fused_infer_attention_score(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    atten_mask: torch.Tensor | None = None,
    actual_seq_lengths: Sequence[int] | None = None,
    actual_seq_lengths_kv: Sequence[int] | None = None,
    block_table: torch.Tensor | None = None,
    num_heads: int = 1,
    scale: float = 1.0,
    pre_tokens: int = INT_MAX,
    next_tokens: int = INT_MAX,
    input_layout: str = "BSH",
    num_key_value_heads: int = 0,
    sparse_mode: int = 0,
    block_size: int = 0,
    **unused: object,
) -> tuple[torch.Tensor, torch.Tensor]:
    """TND attention: query (T, H, D) with ends `actual_seq_lengths`.

    Without a block table key and value are (T, Hk, D) and `actual_seq_lengths_kv` are ends; with one they are paged
    (NB, BS, Hk*D) and it holds the length of each sequence. Returns (attention, softmax lse placeholder).
    """
    require_aclnn(KERNEL, not is_310p(), "this product is not supported", TILING_FAILED)
    require_aclnn(KERNEL, input_layout == "TND", f"layout {input_layout!r} is not emulated")
    check_same_dtype(KERNEL, query, key, value)
    ends = [int(n) for n in actual_seq_lengths or ()]
    kv = [int(n) for n in actual_seq_lengths_kv or ()]
    _check_tnd(query, key, value, num_heads, ends)
    heads = num_key_value_heads or num_heads
    out = torch.zeros_like(query)
    if block_table is None:
        require_aclnn(
            KERNEL,
            len(kv) == len(ends) and kv[-1] <= key.shape[0],
            f"actual_seq_lengths_kv {kv[-3:]} against {key.shape[0]} rows",
        )
        pairs = [(key[b:e], value[b:e]) for b, e in spans(differences(kv))]
    else:
        require_aclnn(KERNEL, block_size == key.shape[1], f"block_size {block_size}, the cache has {key.shape[1]}")
        pairs = [
            (
                paged(key, block_table[i].tolist(), n, heads, nz=False),
                paged(value, block_table[i].tolist(), n, heads, nz=False),
            )
            for i, n in enumerate(kv[: len(ends)])
        ]
    for (begin, end), (k, v) in zip(spans(differences(ends)), pairs, strict=False):
        if end > begin and k.shape[0]:
            bias = _bias(sparse_mode, atten_mask, end - begin, k.shape[0])
            out[begin:end] = attend(query[begin:end], k, v, scale, bias).to(out.dtype)
    return out, torch.zeros(1, dtype=torch.float32)


@operator("npu_fused_infer_attention_score.out", host=("actual_seq_lengths", "actual_seq_lengths_kv"), source=SOURCE)
def npu_fused_infer_attention_score_out(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    workspace: torch.Tensor | None = None,
    out: Sequence[torch.Tensor],
    **arguments: object,
) -> tuple[torch.Tensor, torch.Tensor]:
    """As the operator without `.out`; writes the attention to out[0]."""
    result, _ = npu_fused_infer_attention_score(query, key, value, **arguments)  # type: ignore[arg-type]
    out[0].copy_(result.view_as(out[0]))
    return out[0], out[1]


@operator(
    "_npu_fused_infer_attention_score_get_max_workspace",
    host=("actual_seq_lengths", "actual_seq_lengths_kv"),
    source=SOURCE,
)
def npu_fused_infer_attention_score_get_max_workspace(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **arguments: object
) -> torch.Tensor:
    """One byte: the size of the workspace is not emulated."""
    return torch.empty(1, dtype=torch.uint8)
