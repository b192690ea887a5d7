"""Context names of the graph compiler, without effect."""

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def super_kernel(*args: Any, **kwargs: Any) -> Iterator[None]:
    """Without effect."""
    yield


@contextlib.contextmanager
def npu_stream_switch(*args: Any, **kwargs: Any) -> Iterator[None]:
    """Without effect."""
    yield


@contextlib.contextmanager
def limit_core_num(*args: Any, **kwargs: Any) -> Iterator[None]:
    """Without effect."""
    yield


def npu_wait_tensor(tensor: Any, *args: Any) -> Any:
    """The tensor: the queue runs in order."""
    return tensor
