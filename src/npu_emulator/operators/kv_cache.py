"""Writing keys and values into the paged cache."""

import torch

from npu_emulator.contract import operator
from npu_emulator.operators.refusal import check_no_bf16, is_310p, require_aclnn, require_atb

# Source comment in vllm-ascend 0.18.0 _310p/model_runner_310p.py.
BLOCK_TIMES_HEAD_LIMIT = 128 * 128


def is_nz_cache(cache: torch.Tensor) -> bool:
    """Whether a cache has the 310P shape (NB, Hk*D/16, BS, 16)."""
    return is_310p() and cache.dim() == 4 and cache.shape[-1] == 16


def check_block(cache: torch.Tensor, head_size: int) -> None:
    """Refuse a block whose size times the head size exceeds 16384 on 310P."""
    if is_nz_cache(cache):
        size = cache.shape[2] * head_size
        require_atb(
            "PagedAttentionOperation",
            size <= BLOCK_TIMES_HEAD_LIMIT,
            f"block size * head size is {size} > {BLOCK_TIMES_HEAD_LIMIT}",
        )


def _write(rows: torch.Tensor, cache: torch.Tensor, slots: torch.Tensor) -> None:
    kept = slots >= 0
    rows, slots = rows[: slots.shape[0]][kept], slots[kept].long()
    if is_nz_cache(cache):
        block, offset = slots // cache.shape[2], slots % cache.shape[2]
        cache[block, :, offset, :] = rows.reshape(rows.shape[0], cache.shape[1], 16)
    else:
        block, offset = slots // cache.shape[1], slots % cache.shape[1]
        cache[block, offset] = rows.reshape(rows.shape[0], *cache.shape[2:])


@operator(
    "_npu_reshape_and_cache",
    source="vllm-ascend 0.18.0: int32 slots; cache (NB, Hk*D/16, BS, 16) on 310P "
    "(_310p/attention/attention_v1.py), else (NB, BS, Hk, D)",
)
def npu_reshape_and_cache(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_indices: torch.Tensor,
) -> None:
    """Write key and value (T, Hk, D) to their slots; slot = block * block size + offset, negative slots are skipped."""
    check_no_bf16("ReshapeAndCache", key, value, key_cache, value_cache)
    require_atb(
        "ReshapeAndCacheOperation",
        slot_indices.dtype == torch.int32,
        f"slot indices are {slot_indices.dtype}, not int32",
    )
    require_atb(
        "ReshapeAndCacheOperation", key.dtype == key_cache.dtype, f"key is {key.dtype}, the cache {key_cache.dtype}"
    )
    if is_310p():
        require_atb(
            "ReshapeAndCacheOperation",
            is_nz_cache(key_cache),
            f"cache shape {tuple(key_cache.shape)} is not (NB, Hk*D/16, BS, 16)",
        )
    _write(key, key_cache, slot_indices)
    _write(value, value_cache, slot_indices)


@operator(
    "npu_scatter_pa_kv_cache",
    source='torch_npu schema; vllm-ascend main, 910B: cache_mode "Norm" is the (NB, BS, Hk, D) cache',
)
def npu_scatter_pa_kv_cache(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    compress_lens: torch.Tensor | None = None,
    compress_seq_offsets: torch.Tensor | None = None,
    seq_lens: torch.Tensor | None = None,
    cache_mode: str = "PA_NZ",
) -> None:
    """Write key and value (T, Hk, D) to their slots."""
    require_aclnn("ScatterPaKvCache", cache_mode == "Norm", f"cache mode {cache_mode!r}")
    require_aclnn("ScatterPaKvCache", compress_lens is None and compress_seq_offsets is None, "compressed caches")
    _write(key, key_cache, slot_mapping)
    _write(value, value_cache, slot_mapping)
