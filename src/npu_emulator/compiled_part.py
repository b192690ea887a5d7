"""Stands in for `vllm_ascend.vllm_ascend_C`, which published wheels carry for 910B: the operators of library
`_C_ascend`
that Qwen3-VL and its sampling reach. Other names of the library stay undefined.
"""

import torch

from npu_emulator.contract import Operator


def npu_add_rms_norm_bias(
    x1: torch.Tensor, x2: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor | None = None, epsilon: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """RMS norm of x1 + x2 (T, H), times gamma (H), plus beta (H). Returns (normed, reciprocal deviation, x1 + x2)."""
    total = x1 + x2
    wide = total.to(torch.float32)
    reciprocal = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + epsilon)
    normed = wide * reciprocal * gamma.to(torch.float32)
    if beta is not None:
        normed = normed + beta.to(torch.float32)
    return normed.to(x1.dtype), reciprocal, total


def npu_apply_top_k_top_p(
    logits: torch.Tensor, p: torch.Tensor | None = None, k: torch.Tensor | None = None
) -> torch.Tensor:
    """Logits (B, V) with -inf outside the k (B) largest and outside the smallest set of probability p (B)."""
    ordered, order = logits.sort(-1)
    if k is not None:
        least = ordered.gather(-1, (ordered.shape[-1] - k.to(torch.long))[:, None])
        ordered = ordered.masked_fill(ordered < least, float("-inf"))
    if p is not None:
        below = ordered.softmax(-1, dtype=torch.float32).cumsum(-1)
        dropped = below <= 1 - p[:, None].to(torch.float32)
        dropped[:, -1] = False
        ordered = ordered.masked_fill(dropped, float("-inf"))
    return torch.empty_like(logits).scatter_(-1, order, ordered)


OPERATORS = (
    Operator(
        "npu_add_rms_norm_bias",
        npu_add_rms_norm_bias,
        "schema in the 0.18.0 wheel's vllm_ascend_C; ops/layernorm.py has the plain form beside the call",
        namespace="_C_ascend",
    ),
    Operator(
        "npu_apply_top_k_top_p",
        npu_apply_top_k_top_p,
        "schema in the 0.18.0 wheel's vllm_ascend_C; sample/sampler.py has the plain form; absent in 0.23.0.post1",
        until="2.10.0",
        namespace="_C_ascend",
    ),
)

# Declared, because vllm_ascend.meta_registration asks whether they exist, and without a body: calling one is an error.
DECLARED = (
    "get_masked_input_and_mask(Tensor input, int org_vocab_start_index, int org_vocab_end_index, "
    "int num_org_vocab_padding, int added_vocab_start_index, int added_vocab_end_index) -> (Tensor, Tensor)",
    "bgmv_expand(Tensor! x, Tensor! weight, Tensor! indices, Tensor! y, int slice_offset, int slice_size) -> Tensor",
    "sgmv_expand(Tensor! x, Tensor! weight, Tensor! lora_indices, Tensor! seq_len, Tensor! y, int slice_offset, "
    "int slice_size) -> Tensor",
)
