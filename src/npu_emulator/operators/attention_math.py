"""Plain attention in float32, from which the attention operators are made."""

from collections.abc import Sequence

import torch
from torch.nn import functional


def attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """softmax(scale * q k^T + bias) v for one sequence, computed in float32.

    query (Q, H, D), key and value (K, Hk, D) with H a multiple of Hk; bias (Q, K) additive, float32. Returns (Q, H,
    D) float32.
    """
    repeat = query.shape[1] // key.shape[1]
    heads_first = [t.to(torch.float32).transpose(0, 1) for t in (query, key, value)]
    q, k, v = heads_first[0], *(t.repeat_interleave(repeat, dim=0) if repeat > 1 else t for t in heads_first[1:])
    out = functional.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=bias, scale=scale)[0]
    return out.transpose(0, 1)


def causal_bias(queries: int, keys: int) -> torch.Tensor:
    """(queries, keys) float32: 0 where a query may look, -inf elsewhere; the last query sees the last key."""
    return torch.full((queries, keys), float("-inf")).triu_(diagonal=1 + keys - queries)


def spans(lengths: Sequence[int]) -> list[tuple[int, int]]:
    """Begin and end of each sequence in a packed tensor."""
    result, begin = [], 0
    for length in lengths:
        result.append((begin, begin + length))
        begin += length
    return result


def differences(cumulative: Sequence[int]) -> list[int]:
    """Lengths from ends: [3, 5] -> [3, 2]."""
    return [end - begin for begin, end in zip([0, *cumulative[:-1]], cumulative, strict=True)]


def from_nz(tensor: torch.Tensor) -> torch.Tensor:
    """(B, C/16, R, 16), the 4-D form that vllm-ascend writes NZ masks in -> (B, R, C)."""
    batch, columns, rows, lane = tensor.shape
    return tensor.permute(0, 2, 1, 3).reshape(batch, rows, columns * lane)


def paged(cache: torch.Tensor, blocks: Sequence[int], length: int, heads: int, nz: bool) -> torch.Tensor:
    """The first `length` cached rows of one sequence, (length, heads, D).

    ND cache (NB, BS, Hk, D) or (NB, BS, Hk*D); NZ cache (NB, Hk*D/16, BS, 16).
    """
    block_size = cache.shape[2] if nz else cache.shape[1]
    count = -(-length // block_size)
    chosen = cache[torch.as_tensor(list(blocks[:count]), dtype=torch.long)]
    if nz:
        chosen = chosen.permute(0, 2, 1, 3)
    return chosen.reshape(count * block_size, heads, -1)[:length]
