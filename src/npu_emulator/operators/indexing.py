"""Aten indexing as far as it is known to fail on the NPU."""

from collections.abc import Sequence

import torch

from npu_emulator import faults
from npu_emulator.contract import operator
from npu_emulator.operators.refusal import AICPU_EXCEPTION, device_exception


def by_mask(indices: Sequence[torch.Tensor | None]) -> bool:
    """Whether any index is a boolean mask."""
    return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in indices)


@operator(
    "index_put_",
    namespace="aten",
    source="https://github.com/vllm-project/vllm-ascend/issues/12086: the mask may be on the CPU or on the NPU",
)
def index_put_(
    self: torch.Tensor, indices: Sequence[torch.Tensor | None], values: torch.Tensor, accumulate: bool = False
) -> torch.Tensor:
    """self[indices] = values. With fault `index-put` a boolean mask raises the AI-CPU exception 507018."""
    if faults.active("index-put") and by_mask(indices):
        raise device_exception(AICPU_EXCEPTION, "IndexPut", "aicpu")
    return torch.ops.aten.index_put_(self, list(indices), values, accumulate)
