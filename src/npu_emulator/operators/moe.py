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


@operator(
    "npu_moe_init_routing_v2",
    source="torch_npu schema (hiascend.com Pytorch 700 ptaoplist_002366); aclnnMoeInitRoutingV2 lists Atlas inference "
    "products; vllm-ascend 0.23.0.post1 _310p/fused_moe/token_dispatcher.py reads cumulative counts without the flag",
)
def npu_moe_init_routing_v2(
    x: torch.Tensor,
    expert_idx: torch.Tensor,
    *,
    scale: torch.Tensor | None = None,
    offset: torch.Tensor | None = None,
    active_num: int = -1,
    expert_capacity: int = -1,
    expert_num: int = -1,
    drop_pad_mode: int = 0,
    expert_tokens_num_type: int = 0,
    expert_tokens_num_flag: bool = False,
    quant_mode: int = 0,
    active_expert_range: Sequence[int] | None = None,
    row_idx_type: int = 0,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows of x (T, H) sorted by expert (T k, H), where each of expert_idx (T, k) went (int32, -1: outside the range),
    tokens of each expert of the range (type 0 cumulative, 1 counts), and a scale without meaning.
    """
    kernel = "MoeInitRoutingV2"
    check_no_bf16(kernel, x)
    require_aclnn(kernel, x.dim() == 2 and expert_idx.dim() == 2, "x and expert_idx must have two dimensions")
    require_aclnn(kernel, x.shape[0] == expert_idx.shape[0], "x and expert_idx differ in rows")
    require_aclnn(kernel, expert_idx.dtype == torch.int32, f"expert_idx is {expert_idx.dtype}, not int32")
    require_aclnn(kernel, drop_pad_mode == 0 and quant_mode == -1, "only dropless, unquantised routing is emulated")
    require_aclnn(kernel, expert_tokens_num_type in (0, COUNTS) and row_idx_type == 0, "this output is not emulated")
    first, last = active_expert_range or (0, expert_num)
    experts = expert_idx.flatten().long()
    inside = (experts >= first) & (experts < last)
    order = torch.where(inside, experts, last).argsort(stable=True)[: int(inside.sum())]
    where = torch.full_like(experts, -1, dtype=torch.int32)
    where[order] = torch.arange(len(order), dtype=torch.int32)
    sorted_rows = x.new_zeros(experts.numel(), x.shape[1])
    sorted_rows[: len(order)] = x[order // expert_idx.shape[1]]
    counts = torch.bincount(experts[inside] - first, minlength=last - first)
    tokens = counts if expert_tokens_num_type == COUNTS else counts.cumsum(0)
    return sorted_rows, where, tokens, x.new_empty(experts.numel(), dtype=torch.float32)


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
