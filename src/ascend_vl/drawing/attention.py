"""Attention for drawing. `full`: every query sees every key, no mask. `causal`: the prompt's prefix, once a request.

Shapes: q (G, heads, D), k and v (S, kv_heads, D), result (G, heads, D) in q's dtype; softmax statistics in float32.
"""

import logging
import os
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.nn.functional import scaled_dot_product_attention

from ascend_vl.drawing import settings

logger = logging.getLogger("vllm.plugins.ascend_vl")

Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, float], torch.Tensor]

# int32 maximum: "no band" for the fused operators, whose defaults hide later keys.
NO_LIMIT = 2147483647
QUERY_BLOCK = 512
CHOICE = settings.PREFIX + settings.ATTENTION
# Rows and scale of the sample that an operator is tried on, and how many roundings it may be off.
SAMPLE, PEAKED, ALLOWED = 100, 0.2, 32.0


class Attend(NamedTuple):
    """A way to attend, and its name for reports."""

    name: str
    full: Attention
    causal: Attention


def expanded(x: torch.Tensor, groups: int) -> torch.Tensor:
    """(S, kv_heads, D) to (S, kv_heads * groups, D), each head repeated in place."""
    return x if groups == 1 else x.repeat_interleave(groups, dim=1)


def torch_full(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    """PyTorch's own kernel. Without a mask the query heads of a key head can stand in a row, so keys are not copied."""
    rows, heads, width = q.shape
    kv_heads = k.shape[1]
    folded = q.view(rows, kv_heads, heads // kv_heads, width).permute(1, 2, 0, 3).reshape(1, kv_heads, -1, width)
    out = scaled_dot_product_attention(folded, k.transpose(0, 1)[None], v.transpose(0, 1)[None], scale=scale)
    return out.view(heads, rows, width).transpose(0, 1)


def torch_causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    """PyTorch's own kernel, each row seeing the columns up to itself."""
    groups = q.shape[1] // k.shape[1]
    q, k, v = (t.transpose(0, 1)[None] for t in (q, expanded(k, groups), expanded(v, groups)))
    return scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)[0].transpose(0, 1)


def _blocks(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: bool) -> torch.Tensor:
    rows, heads, _ = q.shape
    groups = heads // k.shape[1]
    keys, values = expanded(k, groups).permute(1, 2, 0), expanded(v, groups).transpose(0, 1)
    out = torch.empty_like(q)
    for start in range(0, rows, QUERY_BLOCK):
        block = q[start : start + QUERY_BLOCK].transpose(0, 1)
        scores = torch.matmul(block * scale, keys)
        scores = scores.float() if scores.dtype.itemsize < 4 else scores
        if causal:
            row = torch.arange(start, start + block.shape[1], device=q.device)[:, None]
            later = torch.arange(keys.shape[2], device=q.device)[None, :] > row
            scores = scores.masked_fill(later, float("-inf"))
        out[start : start + QUERY_BLOCK] = torch.matmul(scores.softmax(dim=-1).to(q.dtype), values).transpose(0, 1)
    return out


def blocks_full(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    """Plain products over blocks of queries: works wherever a matrix product does."""
    return _blocks(q, k, v, scale, causal=False)


def blocks_causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    """As `blocks_full`, each row seeing the columns up to itself."""
    return _blocks(q, k, v, scale, causal=True)


def _heads_first(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(0, 1)[None].contiguous()


def fused_full(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    """910B: `npu_fusion_attention`, TND (no transposes), grouped heads native, no mask."""
    import torch_npu

    return torch_npu.npu_fusion_attention(
        *(q.contiguous(), k.contiguous(), v.contiguous(), q.shape[1], "TND"),
        scale=scale,
        pre_tockens=NO_LIMIT,
        next_tockens=NO_LIMIT,
        actual_seq_qlen=[q.shape[0]],
        actual_seq_kvlen=[k.shape[0]],
        sparse_mode=0,
    )[0]


def prompt_full(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    """310P: `npu_prompt_flash_attention`, BNSD, keys expanded, no mask (ATB's operators want equal lengths)."""
    import torch_npu

    groups = q.shape[1] // k.shape[1]
    out = torch_npu.npu_prompt_flash_attention(
        *(_heads_first(q), _heads_first(expanded(k, groups)), _heads_first(expanded(v, groups))),
        num_heads=q.shape[1],
        scale_value=scale,
        pre_tokens=NO_LIMIT,
        next_tokens=NO_LIMIT,
        input_layout="BNSD",
        sparse_mode=0,
    )
    return out[0].transpose(0, 1)


WAYS = {
    "torch": Attend("torch", torch_full, torch_causal),
    "blocks": Attend("blocks", blocks_full, blocks_causal),
    # The prefix is short and runs once, so it needs no fused operator and no mask of a special shape.
    "fused": Attend("fused", fused_full, blocks_causal),
    "prompt": Attend("prompt", prompt_full, blocks_causal),
}


def choose(device: torch.device, heads: int, kv_heads: int, width: int, dtype: torch.dtype) -> Attend:
    """By chip, or as ASCEND_VL_DRAWING_ATTENTION says: torch, fused, prompt, blocks (KeyError for another name).

    An operator that fails on a small sample, or computes something else, gives way to `blocks`.
    """
    wanted = os.environ.get(CHOICE)
    if wanted:
        return WAYS[wanted]
    if device.type != "npu":
        return WAYS["torch"]
    name = torch.npu.get_device_name(device)  # type: ignore[attr-defined]
    way = WAYS["prompt" if "310P" in name else "fused"]
    try:
        strays = error_of(way, device, heads, kv_heads, width, dtype)
    except Exception as error:
        logger.warning("ascend_vl: drawing attends by blocks: %s failed: %s", way.name, str(error)[:300])
        return WAYS["blocks"]
    if strays > ALLOWED * torch.finfo(dtype).eps:
        logger.warning("ascend_vl: drawing attends by blocks: %s is off by %.1e", way.name, strays)
        return WAYS["blocks"]
    return way


def error_of(way: Attend, device: torch.device, heads: int, kv_heads: int, width: int, dtype: torch.dtype) -> float:
    """Largest difference of `full` from float64, for more keys than queries and peaked scores, relative to the values'
    largest."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((SAMPLE, heads, width), (2 * SAMPLE, kv_heads, width), (2 * SAMPLE, kv_heads, width))
    q, k, v = (torch.randn(shape, generator=generator).to(dtype) for shape in shapes)
    found = way.full(q.to(device), k.to(device), v.to(device), PEAKED).cpu().double()
    exact = blocks_full(q.double(), k.double(), v.double(), PEAKED)
    return float((found - exact).abs().max() / v.abs().max())
