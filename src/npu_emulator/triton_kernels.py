"""Triton kernels that vllm-ascend launches on 910B without asking whether there is Triton (there is none here)."""

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch

from npu_emulator.contract import NpuError, Operator
from npu_emulator.machine import current


class Kernel:
    """A function launched as `kernel[grid](...)`, run once for the whole grid."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]:
        from npu_emulator.calls import bind

        call = bind(self.operator)
        return lambda *args, **kwargs: call(grid, *args, **kwargs)


def compute_slot_mapping(
    grid: tuple[int, ...],
    num_tokens: int,
    max_num_tokens: int,
    query_start_loc: torch.Tensor,
    positions: torch.Tensor,
    block_table: torch.Tensor,
    block_table_stride: int,
    block_size: int,
    slot_mapping: torch.Tensor,
    *,
    TOTAL_CP_WORLD_SIZE: int,
    PAD_ID: int,
    **unused: Any,
) -> None:
    """slot = block * block size + offset for each token's position; slots after the tokens are PAD_ID.

    query_start_loc (requests + 1), positions (tokens), block_table (requests, blocks); grid is (requests + 1,).
    """
    if TOTAL_CP_WORLD_SIZE != 1:
        raise NpuError("npu_emulator: slot mapping under context parallelism is not emulated", 0)
    requests = grid[0] - 1
    starts = query_start_loc[: requests + 1].long()
    rows = torch.repeat_interleave(torch.arange(requests), starts.diff())
    where = positions[: rows.shape[0]].long()
    blocks = block_table[rows, where // block_size].long()
    slot_mapping[: rows.shape[0]] = (blocks * block_size + where % block_size).to(slot_mapping.dtype)
    slot_mapping[num_tokens:max_num_tokens] = PAD_ID


SLOT_MAPPING = Operator(
    "_compute_slot_mapping_kernel",
    compute_slot_mapping,
    "vLLM 0.23.0 v1/worker/block_table.py, the Triton kernel this stands for; launched by vllm-ascend's block_table.py",
)


# vLLM 0.23's, and vllm-ascend 0.26's own of the same name and arguments.
HOLDERS = ("vllm.v1.worker.block_table", "vllm_ascend.ops.triton.compute_slot_mapping")


def install() -> None:
    """Replace the kernels in the modules that hold them, once these are imported; on 910B only (310P has no Triton)."""
    from npu_emulator.install import after_import

    def replace(name: str) -> None:
        module = sys.modules[name]
        if hasattr(module, "_compute_slot_mapping_kernel"):
            module._compute_slot_mapping_kernel = Kernel(SLOT_MAPPING)  # type: ignore[attr-defined]

    if not current().is_310p:
        for name in HOLDERS:
            after_import(name, functools.partial(replace, name))
