"""Names of torch_npu.profiler; nothing is measured."""

import contextlib
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

from torch_npu.profiler import dynamic_profile as dynamic_profile


class ProfilerActivity(Enum):
    """What would be recorded."""

    CPU = 0
    NPU = 1


class ProfilerLevel(Enum):
    """How much would be recorded."""

    Level0 = 0
    Level1 = 1
    Level2 = 2


class AiCMetrics(Enum):
    """Which counters would be read."""

    AiCoreNone = 0
    PipeUtilization = 1
    ArithmeticUtilization = 2
    Memory = 3


class ExportType(Enum):
    """How it would be written."""

    Text = "text"
    Db = "db"


class _ExperimentalConfig:
    """Takes every option."""

    def __init__(self, **options: Any) -> None:
        self.options = options


class profile:
    """A context without effect."""

    def __init__(self, **options: Any) -> None:
        self.options = options

    def __enter__(self) -> "profile":
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def start(self) -> None:
        """Without effect."""

    def stop(self) -> None:
        """Without effect."""

    def step(self) -> None:
        """Without effect."""


def tensorboard_trace_handler(*args: Any, **kwargs: Any) -> Callable[..., None]:
    """A handler without effect."""
    return lambda *_: None


@contextlib.contextmanager
def record_function(name: str) -> Iterator[None]:
    """A context without effect."""
    yield
