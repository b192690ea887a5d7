"""Memory of the chips, in bytes."""

import contextlib
from collections.abc import Iterator
from typing import Any

from npu_emulator import install
from npu_emulator.contract import NpuError


def _usage(device: Any = None) -> dict[str, int]:
    from torch_npu.npu import _index

    return dict(install.device().usage(_index(device)))


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(free, total) of a chip; what other processes on it hold is not free."""
    from torch_npu.npu import _index

    extension = install.device()
    return extension.free_bytes(_index(device)), extension.memory_bytes()


def memory_allocated(device: Any = None) -> int:
    """In use by tensors of this process."""
    return _usage(device)["allocated"]


def max_memory_allocated(device: Any = None) -> int:
    """Most that was in use since the last reset."""
    return _usage(device)["allocated_peak"]


def memory_reserved(device: Any = None) -> int:
    """Held by this process, in use or not."""
    return _usage(device)["reserved"]


def max_memory_reserved(device: Any = None) -> int:
    """Most that was held since the last reset."""
    return _usage(device)["reserved_peak"]


def memory_stats(device: Any = None) -> dict[str, int]:
    """Statistics under PyTorch's names."""
    usage = _usage(device)
    stats = {"num_ooms": usage["out_of_memory"], "num_alloc_retries": 0, "inactive_split_bytes.all.current": 0}
    for name, kind in (("allocated_bytes", "allocated"), ("reserved_bytes", "reserved"), ("active_bytes", "allocated")):
        for pool in ("all", "large_pool"):
            stats[f"{name}.{pool}.current"] = usage[kind]
            stats[f"{name}.{pool}.peak"] = usage[f"{kind}_peak"]
    stats["allocation.all.allocated"] = usage["allocations"]
    stats["allocation.all.freed"] = usage["frees"]
    return stats


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """Statistics as text."""
    return "\n".join(f"{name}: {value}" for name, value in memory_stats(device).items())


def empty_cache() -> None:
    """Give back what is held and not in use."""
    install.device().empty_cache()


def reset_peak_memory_stats(device: Any = None) -> None:
    """Peaks start again from now."""
    from torch_npu.npu import _index

    install.device().reset_peak(_index(device))


reset_max_memory_allocated = reset_peak_memory_stats


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Without effect."""


def memory_snapshot() -> list[Any]:
    """Empty: blocks are not listed."""
    return []


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Raises NpuError: not emulated."""
    raise NpuError("npu_emulator: a per-process memory fraction is not emulated", 0)


class NPUPluggableAllocator:
    """Raises NpuError: other allocators are not emulated."""

    def __init__(self, *args: Any) -> None:
        raise NpuError("npu_emulator: pluggable allocators are not emulated", 0)


class MemPool:
    """A pool's name; all memory comes from one place."""

    def __init__(self, allocator: Any = None) -> None:
        self.id = (0, id(self))


@contextlib.contextmanager
def use_mem_pool(pool: MemPool, device: Any = None) -> Iterator[None]:
    """A context without effect."""
    yield
