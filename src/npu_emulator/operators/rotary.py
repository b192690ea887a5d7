"""Rotary position embeddings."""

import torch

from npu_emulator import faults
from npu_emulator.contract import operator
from npu_emulator.operators.refusal import (
    TILING_FAILED,
    check_no_bf16,
    check_same_dtype,
    is_310p,
    require_aclnn,
)


def rotate_half(x: torch.Tensor) -> torch.Tensor:
    """(a, b) -> (-b, a) for the halves of the last dimension."""
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


def rotate_pairs(x: torch.Tensor) -> torch.Tensor:
    """(a0, b0, a1, b1, ...) -> (-b0, a0, -b1, a1, ...)."""
    return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)


def _turn(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, mode: str) -> torch.Tensor:
    wide = x.to(torch.float32)
    turned = rotate_half(wide) if mode == "half" else rotate_pairs(wide)
    return wide * cos.to(torch.float32) + turned * sin.to(torch.float32)


@operator(
    "npu_rotary_mul",
    source="torch_npu 2.10.0.post4 documentation and meta registration (output like the input); fault rotary-fp32",
)
def npu_rotary_mul(
    input: torch.Tensor,
    r1: torch.Tensor,
    r2: torch.Tensor,
    rotary_mode: str = "half",
    rotate: torch.Tensor | None = None,
) -> torch.Tensor:
    """r1 * x + r2 * rotate(x); x (B, S, N, D), r1 and r2 broadcastable to it, e.g. (1, S, 1, D). Output in the dtype
    of x.
    """
    check_no_bf16("RotaryPositionEmbedding", input, r1, r2)
    require_aclnn(
        "RotaryPositionEmbedding", input.dim() == 4 and r1.dim() == 4 and r2.dim() == 4, "inputs must have 4 dimensions"
    )
    require_aclnn(
        "RotaryPositionEmbedding",
        input.shape[-1] % 2 == 0 and input.shape[-1] < 896 and r1.shape[-1] == input.shape[-1],
        f"D is {input.shape[-1]} (r1 {r1.shape[-1]}): it must be even, below 896 and equal",
    )
    if faults.active("rotary-coarse") and input.dtype == torch.float16:
        r1, r2 = (table.to(torch.float8_e4m3fn).to(table.dtype) for table in (r1, r2))
    if rotate is None:
        result = _turn(input, r1, r2, rotary_mode)
    else:
        wide = input.to(torch.float32)
        result = wide * r1.to(torch.float32) + (wide @ rotate.to(torch.float32)) * r2.to(torch.float32)
    if faults.active("rotary-fp32") and input.dtype == torch.float16:
        return result
    return result.to(input.dtype)


@operator(
    "npu_apply_rotary_pos_emb",
    source="torch_npu 2.10.0.post4 documentation: D 64 or 128, mode half, one dtype, same B and S, in place",
)
def npu_apply_rotary_pos_emb(
    query: torch.Tensor,
    key: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    layout: str = "BSND",
    rotary_mode: str = "half",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Turn query (B, S, N, D) and key (B, S, Nk, D) by cos and sin (B, S, 1, D), in place."""
    kernel = "ApplyRotaryPosEmbV2"
    check_no_bf16(kernel, query, key, cos, sin)
    check_same_dtype(kernel, query, key, cos, sin)
    require_aclnn(kernel, layout in ("BSND", "TND"), f"layout {layout!r}")
    require_aclnn(kernel, rotary_mode == "half", f"rotary mode {rotary_mode!r}")
    width = query.shape[-1]
    require_aclnn(
        kernel, width in (64, 128) and key.shape[-1] == width, f"D is {width}: it must be 64 or 128", TILING_FAILED
    )
    leading = 2 if layout == "BSND" else 1
    require_aclnn(
        kernel, all(t.shape[:leading] == query.shape[:leading] for t in (key, cos, sin)), "leading dimensions differ"
    )
    query.copy_(_turn(query, cos, sin, "half").to(query.dtype))
    key.copy_(_turn(key, cos, sin, "half").to(key.dtype))
    return query, key


def _by_cache(
    x: torch.Tensor, positions: torch.Tensor, cache: torch.Tensor, head_size: int, halves: bool
) -> torch.Tensor:
    cos, sin = cache[positions.long()].to(torch.float32).chunk(2, -1)
    shaped = x.reshape(x.shape[0], -1, head_size).to(torch.float32)
    width = cos.shape[-1] * 2
    part, rest = shaped[..., :width], shaped[..., width:]
    if halves:
        cos, sin = torch.cat((cos, cos), -1), torch.cat((sin, sin), -1)
        turned = rotate_half(part)
    else:
        cos, sin = cos.repeat_interleave(2, -1), sin.repeat_interleave(2, -1)
        turned = rotate_pairs(part)
    result = part * cos[:, None] + turned * sin[:, None]
    return torch.cat((result, rest), -1).reshape(x.shape).to(x.dtype)


@operator("_npu_rotary_embedding", source="torch_npu schema (in place); vllm-ascend 0.18.0 ops/rotary_embedding.py")
def npu_rotary_embedding(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    head_size: int,
    cos_sin_cache: torch.Tensor,
    is_neox_style: bool,
) -> None:
    """Turn query (T, H*D) and key (T, Hk*D) in place; cos_sin_cache (positions, rotary width) holds cos then sin."""
    check_no_bf16("RopeOperation", query, key, cos_sin_cache)
    for x in (query, key):
        x.copy_(_by_cache(x, positions, cos_sin_cache, head_size, is_neox_style))


@operator(
    "npu_mrope",
    source="torch_npu 2.10.0.post4 documentation: 2-D inputs, rotary width a multiple of 32 for 16-bit "
    "dtypes; three-part cos/sin",
)
def npu_mrope(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    head_size: int,
    mrope_section: list[int] | None = None,
    rotary_mode: str = "half",
    cache_mode: str = "default",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotary embedding with one (T) or three (3, T) positions a token; section [0, 0, 0] means one."""
    kernel = "Mrope"
    check_no_bf16(kernel, query, key, cos_sin_cache)
    require_aclnn(
        kernel, query.dim() == 2 and key.dim() == 2 and cos_sin_cache.dim() == 2, "inputs must have 2 dimensions"
    )
    width = cos_sin_cache.shape[-1]
    multiple = 16 if query.dtype == torch.float32 else 32
    require_aclnn(kernel, width % multiple == 0, f"rotary width {width} is no multiple of {multiple}")
    section = list(mrope_section or [0, 0, 0])
    if positions.dim() == 1:
        section = [0, 0, 0]
    if sum(section):
        require_aclnn(kernel, sum(section) == width // 2, f"mrope section {section} does not sum to {width // 2}")
        parts = cos_sin_cache[positions.long()].chunk(2, -1)
        cos, sin = (_mix(part, section, cache_mode == "interleave") for part in parts)
        table = torch.cat((cos, sin), -1)
        rows = torch.arange(table.shape[0])
    else:
        table, rows = cos_sin_cache, positions
    halves = rotary_mode == "half"
    return _by_cache(query, rows, table, head_size, halves), _by_cache(key, rows, table, head_size, halves)


def _mix(part: torch.Tensor, section: list[int], interleaved: bool) -> torch.Tensor:
    """(3, T, width) of one half of the cache -> (T, width): which axis turns which frequency."""
    if not interleaved:
        return torch.cat([axis[i] for i, axis in enumerate(part.split(section, -1))], -1)
    result = part[0].clone()
    for axis in (1, 2):
        result[..., axis : section[axis] * 3 : 3] = part[axis, ..., axis : section[axis] * 3 : 3]
    return result


@operator(
    "triton_split_qkv_rmsnorm_mrope",
    namespace="vllm",
    source="vllm-ascend 0.18.0 ops/triton/linearnorm/split_qkv_rmsnorm_mrope.py (the Triton kernel this stands for)",
)
def split_qkv_rmsnorm_mrope(
    qkv: torch.Tensor,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor,
    cos_sin: torch.Tensor,
    num_q_heads: int,
    num_kv_heads: int,
    head_size: int,
    eps: float,
    mrope_section: list[int],
    is_interleaved: bool,
    rope_dim: int | None = None,
    q_bias: torch.Tensor | None = None,
    k_bias: torch.Tensor | None = None,
    has_gate: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Split qkv (T, ...), normalise q and k per head, turn them; cos_sin (3, T, rope_dim). Returns q, k, v, gate."""
    require_aclnn("TritonSplitQkv", not is_310p(), "there is no Triton on this chip")
    tokens, width = qkv.shape[0], rope_dim or head_size
    q_size, kv_size = num_q_heads * head_size, num_kv_heads * head_size
    gated, k, v = qkv.split([q_size * (2 if has_gate else 1), kv_size, kv_size], -1)
    gate = qkv.new_empty(tokens, 0)
    q = gated
    if has_gate:
        q, gate = (t.reshape(tokens, q_size) for t in gated.reshape(tokens, num_q_heads, 2 * head_size).chunk(2, -1))
    halves = cos_sin.to(torch.float32).reshape(3, tokens, width).chunk(2, -1)
    cos, sin = (_mix(half, list(mrope_section), is_interleaved) for half in halves)
    cos, sin = (torch.cat((t, t), -1)[:, None] for t in (cos, sin))

    def prepared(x: torch.Tensor, heads: int, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        wide = x.reshape(tokens, heads, head_size).to(torch.float32)
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.to(torch.float32)
        if bias is not None:
            wide = wide + bias.to(torch.float32)
        part = wide[..., :width]
        turned = part * cos + rotate_half(part) * sin
        return torch.cat((turned, wide[..., width:]), -1).reshape(tokens, heads * head_size).to(x.dtype)

    return (
        prepared(q, num_q_heads, q_weight, q_bias),
        prepared(k, num_kv_heads, k_weight, k_bias),
        v.contiguous(),
        gate.contiguous(),
    )
