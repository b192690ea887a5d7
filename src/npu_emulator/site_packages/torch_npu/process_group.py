"""HCCL as gloo over the same memory."""

from datetime import timedelta
from typing import Any

import torch.distributed as dist

from npu_emulator import install


def create(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    """The backend of one process group for tensors on the NPU."""
    from torch.distributed import ProcessGroupGloo

    gloo = ProcessGroupGloo(dist.PrefixStore("hccl", store), rank, size, timeout=timeout)
    made = install.device().Hccl(gloo)
    return made


def register_hccl() -> None:
    """Make "hccl" a backend of torch.distributed for device `npu`; safe to repeat."""
    if not dist.is_available() or hasattr(dist.Backend, "HCCL"):
        return
    dist.Backend.register_backend("hccl", create, devices=["npu"])
    dist.is_hccl_available = lambda: True  # type: ignore[attr-defined]
    hccl = install.device().Hccl
    hccl.get_hccl_comm_name = lambda self, rank: f"emulated_hccl_{self.name()}_{rank}"
    hccl.abort_hccl_comm = lambda self, reason="": None
