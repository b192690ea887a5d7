"""Graph capture: operators are recorded as they run and replayed on the same memory."""

import itertools
from typing import Any

from npu_emulator import install
from npu_emulator.contract import NpuError

_pools = itertools.count(1)


def graph_pool_handle() -> tuple[int, int]:
    """Names a memory pool; all memory comes from one place here."""
    return (0, next(_pools))


def is_current_stream_capturing() -> bool:
    """Whether a capture is under way in this thread."""
    return bool(install.device().capturing())


class NPUGraph:
    """A recorded piece of work. Its tensors keep their addresses from capture to every replay."""

    def __init__(self, keep_graph: bool = False) -> None:
        self._recording: Any = None
        self._pool = graph_pool_handle()

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global", **_: Any) -> None:
        """From now on operators are recorded; waiting for the device is refused. Raises NpuError inside a capture."""
        install.device().begin_capture()
        self._pool = pool or self._pool

    def capture_end(self) -> None:
        """The recording ends."""
        self._recording = install.device().end_capture()

    def replay(self) -> None:
        """Run the recorded operators again, on the memory they were recorded with."""
        if self._recording is None:
            raise NpuError("NPUGraph::replay called without a preceding successful capture.", 107025)
        self._recording.replay()

    def reset(self) -> None:
        """Forget the recording and give its memory back."""
        self._recording = None

    def pool(self) -> Any:
        """The memory pool's name."""
        return self._pool

    def debug_dump(self, path: str) -> None:
        """Without effect."""

    def enable_debug_mode(self) -> None:
        """Without effect."""

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Raises NpuError: changing a captured graph is not emulated (PIECEWISE capture does not need it)."""
        raise NpuError("npu_emulator: updating a captured graph is not emulated", 0)


class graph:
    """Context: what runs inside is recorded into the graph."""

    def __init__(self, npu_graph: NPUGraph, pool: Any = None, stream: Any = None, **options: Any) -> None:
        self.graph, self.pool_handle, self.stream = npu_graph, pool, stream

    def __enter__(self) -> None:
        from torch_npu.npu.streams import synchronize

        synchronize()
        self.graph.capture_begin(pool=self.pool_handle)

    def __exit__(self, *error: object) -> None:
        self.graph.capture_end()


class ExternalEvent:
    """An event shared with a captured graph; only FULL graphs need it."""

    def record(self, stream: Any = None) -> None:
        """Without effect: the queue runs in order."""

    def wait(self, stream: Any = None) -> None:
        """Without effect: the queue runs in order."""

    def reset(self, stream: Any = None) -> None:
        """Without effect: the queue runs in order."""


def _full_graphs(*args: Any, **kwargs: Any) -> Any:
    """Raises NpuError: changing tasks of a captured graph is what FULL graphs need, and is not emulated."""
    raise NpuError("npu_emulator: task groups of captured graphs are not emulated; use PIECEWISE or eager", 0)


graph_task_group_begin = graph_task_group_end = graph_task_update_begin = graph_task_update_end = _full_graphs
make_graphed_callables = _full_graphs
