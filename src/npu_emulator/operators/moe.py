"""Mixture of experts: what the eager path of vllm-ascend calls."""

from collections.abc import Sequence

import torch

from npu_emulator.contract import operator
from npu_emulator.operators.attention_math import differences
from npu_emulator.operators.refusal import check_no_bf16, require_aclnn

COUNTS = 1


@operator(
    "npu_grouped_matmul",
    source="torch_npu schema; vllm-ascend 0.18.0 _310p/fused_moe/moe_mlp.py: one x, one stacked weight, "
    "split_item 2, group_type 0",
)
def npu_grouped_matmul(
    x: Sequence[torch.Tensor],
    weight: Sequence[torch.Tensor],
    *,
    group_list: torch.Tensor | None = None,
    split_item: int = 0,
    group_type: int | None = None,
    group_list_type: int = 0,
    **unused: object,
) -> list[torch.Tensor]:
    """x[0] (T, K) in groups of rows, each times its weight[0][g] (K, N); group_list holds ends (type 0) or counts
    (type 1).
    """
    kernel = "GroupedMatmulV4"
    check_no_bf16(kernel, x[0], weight[0])
    require_aclnn(
        kernel,
        len(x) == 1 and len(weight) == 1 and weight[0].dim() == 3,
        "only one x and one stacked weight are emulated",
    )
    require_aclnn(kernel, split_item in (2, 3) and group_type == 0, f"split_item {split_item}, group_type {group_type}")
    require_aclnn(kernel, x[0].dtype == weight[0].dtype, "x and weight differ in dtype")
    groups = [int(n) for n in group_list.tolist()] if group_list is not None else []
    counts = groups if group_list_type == COUNTS else differences(groups)
    require_aclnn(kernel, sum(counts) <= x[0].shape[0], f"the groups hold {sum(counts)} rows, x has {x[0].shape[0]}")
    out = x[0].new_zeros(x[0].shape[0], weight[0].shape[-1])
    begin = 0
    for expert, count in enumerate(counts):
        rows = x[0][begin : begin + count].to(torch.float32)
        out[begin : begin + count] = (rows @ weight[0][expert].to(torch.float32)).to(out.dtype)
        begin += count
    return [out]


@operator("npu_moe_token_unpermute", source="torch_npu schema; vllm-ascend 0.18.0 ops/fused_moe/token_dispatcher.py")
def npu_moe_token_unpermute(
    permuted_tokens: torch.Tensor,
    sorted_indices: torch.Tensor,
    probs: torch.Tensor | None = None,
    padded_mode: bool = False,
    restore_shape: Sequence[int] | None = None,
) -> torch.Tensor:
    """Bring the rows back to their tokens and add each token's experts, weighted by probs (T, k); negative indices
    are left out.
    """
    require_aclnn("MoeTokenUnpermute", not padded_mode, "padded mode is not emulated")
    k = probs.shape[1] if probs is not None else 1
    kept = (sorted_indices >= 0)[:, None]
    rows = permuted_tokens[sorted_indices.clamp(min=0).long()].to(torch.float32) * kept
    rows = rows.reshape(-1, k, permuted_tokens.shape[-1])
    if probs is not None:
        rows = rows * probs.to(torch.float32)[..., None]
    return rows.sum(1).to(permuted_tokens.dtype)


@operator(
    "npu_moe_gating_top_k_softmax",
    source="torch_npu schema; vllm-ascend 0.23.0.post1 _310p/fused_moe/experts_selector.py",
)
def npu_moe_gating_top_k_softmax(
    x: torch.Tensor, finished: torch.Tensor | None = None, k: int = 1
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """softmax over experts, then the k largest; returns weights in x's dtype, expert ids int32, row ids int32
    (column major).
    """
    check_no_bf16("MoeGatingTopKSoftmax", x)
    weights, ids = torch.softmax(x.to(torch.float32), -1).topk(k, -1)
    rows = torch.arange(x.shape[0] * k, dtype=torch.int32).view(k, x.shape[0]).T.contiguous()
    return weights.to(x.dtype), ids.to(torch.int32), rows
