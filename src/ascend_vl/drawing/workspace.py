"""The device memory that drawings will need, held while vLLM measures what is left for its KV cache.

Reserved while the model loads, it counts as weights in every vLLM version; released after the KV cache is made, it
stays with torch's allocator, so that drawings find it.
"""

from collections.abc import Mapping
from typing import Any

import torch

from ascend_vl.drawing.budget import workspace_bytes

_ATTRIBUTE = "_drawing_workspace"


def reserve(model: Any, config: Mapping[str, Any], dtype: torch.dtype, tp: int, device: torch.device) -> int:
    """Hold the workspace as an attribute of the model; its bytes. Called while the model is built."""
    size = workspace_bytes(config, dtype.itemsize, tp)
    object.__setattr__(model, _ATTRIBUTE, torch.empty(size, dtype=torch.uint8, device=device))
    return size


def release(model: Any) -> int:
    """Give the workspace back to torch's allocator; its bytes (0: there was none)."""
    held = getattr(model, _ATTRIBUTE, None)
    if held is None:
        return 0
    size = held.numel()
    object.__setattr__(model, _ATTRIBUTE, None)
    return size
