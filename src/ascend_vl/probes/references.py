"""What the probed operators should give: float64 from the exact inputs, and plain PyTorch in the dtype under test.

Each reference has a second implementation in tests/probes, which a probe's verdict depends on as much as on this one.
"""

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def peaked_heads(
    rows: int, heads: int, width: int, dtype: "torch.dtype", seed: int = 0
) -> "tuple[torch.Tensor, torch.Tensor, torch.Tensor]":
    """Query, key and value (rows, heads, width) on the CPU whose attention is peaked.

    Independent noise makes any attention look like an average; here each query resembles one key: for row r, the key
    of another row, scaled so that its score stands well above the others.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    key, value, noise = (torch.randn(rows, heads, width, generator=generator) for _ in range(3))
    partner = torch.randperm(rows, generator=generator)
    query = 0.7 * key[partner] + 0.5 * noise
    return query.to(dtype), key.to(dtype), value.to(dtype)


def packed_attention(
    q: "torch.Tensor", k: "torch.Tensor", v: "torch.Tensor", lengths: Sequence[int], scale: float, dtype: "torch.dtype"
) -> "torch.Tensor":
    """softmax(scale q k^T) v within each sequence, computed in `dtype`; q, k, v (T, H, D) -> (T, H, D) in `dtype`."""
    import torch

    parts = []
    bounds = [0, *itertools.accumulate(lengths)]
    for begin, end in itertools.pairwise(bounds):
        query, key, value = (t[begin:end].to(dtype).transpose(0, 1) for t in (q, k, v))
        scores = torch.softmax(query @ key.transpose(1, 2) * scale, -1)
        parts.append((scores @ value).transpose(0, 1))
    return torch.cat(parts)


def rotated(x: "torch.Tensor", cos: "torch.Tensor", sin: "torch.Tensor", dtype: "torch.dtype") -> "torch.Tensor":
    """x * cos + rotate_half(x) * sin, computed in `dtype`; x (1, S, H, D), cos and sin (1, S, 1, D)."""
    import torch

    x, cos, sin = x.to(dtype), cos.to(dtype), sin.to(dtype)
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


def merged(target: "torch.Tensor", mask: "torch.Tensor", rows: "torch.Tensor") -> "torch.Tensor":
    """A copy of target (T, C) whose rows under mask (T,) are `rows`, one after another."""
    result, taken = target.clone(), 0
    for position, chosen in enumerate(mask.tolist()):
        if chosen:
            result[position] = rows[taken]
            taken += 1
    return result
