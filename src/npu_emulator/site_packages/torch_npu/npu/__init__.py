"""`torch.npu`: chips, streams, memory, graphs, random numbers."""

import contextlib
from types import SimpleNamespace
from typing import Any

import torch

from npu_emulator import install
from npu_emulator.machine import current
from torch_npu import _C
from torch_npu.npu import memory as memory
from torch_npu.npu.graphs import (
    ExternalEvent,
    NPUGraph,
    graph,
    graph_pool_handle,
    graph_task_group_begin,
    graph_task_group_end,
    graph_task_update_begin,
    graph_task_update_end,
    is_current_stream_capturing,
    make_graphed_callables,
)
from torch_npu.npu.memory import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from torch_npu.npu.random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from torch_npu.npu.streams import (
    Event,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    set_stream,
    stream,
    synchronize,
)

__all__ = [
    "Event",
    "ExternalEvent",
    "NPUGraph",
    "Stream",
    "StreamContext",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "empty_cache",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "get_soc_version",
    "graph",
    "graph_pool_handle",
    "graph_task_group_begin",
    "graph_task_group_end",
    "graph_task_update_begin",
    "graph_task_update_end",
    "initial_seed",
    "is_available",
    "is_current_stream_capturing",
    "make_graphed_callables",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
]

# Settings of torch_npu; stored, without effect.
config = SimpleNamespace(allow_internal_format=True)


def is_available() -> bool:
    """Whether there is a chip."""
    return device_count() > 0


def device_count() -> int:
    """Chips this process sees."""
    return _C._npu_getDeviceCount()


def current_device() -> int:
    """The current chip."""
    return _C._npu_getDevice()


def _index(device: Any = None) -> int:
    """Index of `device`: an int, a name, a torch.device, or None for the current chip."""
    if device is None:
        return current_device()
    if isinstance(device, int):
        return device if device >= 0 else current_device()
    index = torch.device(device).index
    return current_device() if index is None else index


def set_device(device: Any) -> None:
    """Make `device` the current chip. Raises NpuError (107001) for one that does not exist."""
    _C._npu_setDevice(_index(device))


class device(contextlib.ContextDecorator):
    """Context with another current chip."""

    def __init__(self, device: Any) -> None:
        self.index = _index(device)
        self.before = self.index

    def __enter__(self) -> "device":
        self.before = current_device()
        set_device(self.index)
        return self

    def __exit__(self, *error: object) -> None:
        set_device(self.before)


def get_device_name(device: Any = None) -> str:
    """The chip's name as CANN says it."""
    return f"Ascend{current().chip}"


def get_device_properties(device: Any = None) -> Any:
    """Name and memory of a chip; core counts are those of the product sheets."""
    is_310p = current().is_310p
    return SimpleNamespace(
        name=get_device_name(device),
        total_memory=current().memory_bytes,
        multi_processor_count=8 if is_310p else 20,
        cube_core_num=8 if is_310p else 20,
        vector_core_num=8 if is_310p else 40,
        L2_cache_size=0,
        uuid=f"emulated-{_index(device)}",
    )


def get_device_capability(device: Any = None) -> None:
    """NPUs have no such number."""
    return None


def get_soc_version() -> int:
    """The SoC's number."""
    return _C._npu_get_soc_version()


def set_compile_mode(jit_compile: bool = False) -> None:
    """Stored nowhere: there is nothing to compile."""


def set_option(options: dict[str, Any]) -> None:
    """Without effect."""


def init() -> None:
    """Without effect: importing is enough."""


def is_initialized() -> bool:
    """True."""
    return True


_lazy_init = init


def _is_in_bad_fork() -> bool:
    return False


def _is_compiled() -> bool:
    return True


def is_bf16_supported() -> bool:
    """Whether the chip has bfloat16."""
    return not current().is_310p


def get_amp_supported_dtype() -> list[torch.dtype]:
    """What torch.autocast may choose."""
    return [torch.float16] if current().is_310p else [torch.float16, torch.bfloat16]


def ipc_collect() -> None:
    """Without effect."""


def utilization(device: Any = None) -> int:
    """0: nothing is measured."""
    return 0


def can_device_access_peer(device: Any, peer: Any) -> bool:
    """True: all chips are host memory."""
    return True


def stress_detect() -> int:
    """0: no fault found."""
    return 0


def restart_device(device: Any) -> None:
    """Without effect: a lost device stays lost until the process ends."""


def stop_device(device: Any) -> None:
    """Without effect."""


def _subscribe_report(*args: Any) -> None:
    return None


def _unsubscribe_report(*args: Any) -> None:
    return None


def _launch_host_func(stream: Any, function: Any, data: Any) -> None:
    synchronize()
    function(data)


def _sleep(cycles: int) -> None:
    install.device().enqueue()
