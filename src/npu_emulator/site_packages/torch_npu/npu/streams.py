"""Streams and events. The queue is one per process and runs in order; waiting for any of it is waiting for what was
queued.
"""

import contextlib
from typing import Any

import torch

from npu_emulator import install


def _index(device: Any) -> int:
    from torch_npu.npu import _index as index

    return index(device)


class Stream(torch.Stream):
    """A stream of one chip."""

    def __new__(cls, device: Any = None, priority: int = 0, **names: Any) -> "Stream":
        if "stream_id" in names:
            return super().__new__(cls, priority=priority, **names)
        return super().__new__(cls, device=f"npu:{_index(device)}", priority=priority)

    @property
    def npu_stream(self) -> int:
        """A number that names the stream."""
        return int(self.stream_id)

    def set_data_preprocess_stream(self, is_data_preprocess_stream: bool = False) -> None:
        """Without effect."""


class Event(torch.Event):
    """A place in the queue."""

    def __new__(
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, **_: Any
    ) -> "Event":
        return super().__new__(cls, device="npu", enable_timing=enable_timing, blocking=blocking)

    def record(self, stream: Any = None) -> None:
        """Mark the present end of the queue."""
        super().record(stream if stream is not None else current_stream())

    def wait(self, stream: Any = None) -> None:
        """Later work comes after the event, as it does anyway."""
        super().wait(stream if stream is not None else current_stream())

    @property
    def npu_event(self) -> int:
        """A number that names the event."""
        return int(self.event_id or 0)


def _as_stream(stream_id: int, index: int) -> Stream:
    return Stream(stream_id=stream_id, device_index=index, device_type=torch._C._autograd.DeviceType.PrivateUse1.value)


def current_stream(device: Any = None) -> Stream:
    """The current stream of a chip."""
    index = _index(device)
    return _as_stream(install.device().current_stream(index), index)


def default_stream(device: Any = None) -> Stream:
    """The stream work goes to unless told otherwise."""
    return _as_stream(0, _index(device))


def set_stream(stream: Any) -> None:
    """Make `stream` the current one of its chip."""
    if stream is not None:
        install.device().set_current_stream(stream.device_index, stream.stream_id)


class StreamContext(contextlib.ContextDecorator):
    """Context with another current stream; None changes nothing."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.before: Any = None

    def __enter__(self) -> "StreamContext":
        if self.stream is not None:
            self.before = current_stream(self.stream.device_index)
            set_stream(self.stream)
        return self

    def __exit__(self, *error: object) -> None:
        if self.stream is not None:
            set_stream(self.before)


def stream(stream: Any) -> StreamContext:
    """Context in which work goes to `stream`."""
    return StreamContext(stream)


def synchronize(device: Any = None) -> None:
    """Wait for everything queued. Raises NpuError when the device is lost, or inside a graph capture."""
    install.device().synchronize()
