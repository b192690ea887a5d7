"""Names of torch_npu's compiled module that vllm-ascend uses."""

from typing import Any

import torch

from npu_emulator import install
from npu_emulator.contract import NpuError
from npu_emulator.machine import current
from torch_npu._C import _distributed_c10d as _distributed_c10d


class _NPUTaskGroupHandle:
    """Names the updatable tasks of a captured graph."""


def _weak_ref_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory without keeping it from being freed; here it is kept."""
    return tensor.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


def _npu_get_soc_version() -> int:
    """The SoC's number: 202 is a 310P3, 223 a 910B3 (torch_npu counts 310P from 200 and 910B from 220)."""
    return 202 if current().is_310p else 223


def _npu_getDeviceCount() -> int:
    """Chips this process sees."""
    return int(install.device().chips())


def _npu_setDevice(chip: int) -> None:
    """Make `chip` the current one."""
    install.device().set_current_chip(chip)


def _npu_getDevice() -> int:
    """The current chip."""
    return int(install.device().current_chip())


def _unsupported(what: str) -> Any:
    raise NpuError(f"npu_emulator: {what} is not emulated", 0)
