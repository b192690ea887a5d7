"""Stands in for torchair, the graph compiler: graphs run as they are traced; modules exist because vllm-ascend
reloads them.
"""

from collections.abc import Callable
from typing import Any

from torchair import core, fx_summary, npu_fx_compiler, ops, scope

__all__ = [
    "CompilerConfig",
    "core",
    "fx_summary",
    "get_npu_backend",
    "npu_fx_compiler",
    "ops",
    "patch_for_hcom",
    "scope",
]


class CompilerConfig:
    """Takes every setting."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = CompilerConfig()
        self.__dict__[name] = value
        return value


def get_npu_backend(*, compiler_config: Any = None, **options: Any) -> Callable[..., Any]:
    """A backend that runs the traced graph as it is, operator by operator, as aclgraph mode does before capture."""

    def backend(graph: Any, example_inputs: Any = None) -> Any:
        return graph

    return backend


def register_replacement(*args: Any, **kwargs: Any) -> None:
    """Without effect: this compiler replaces no patterns."""


def patch_for_hcom() -> None:
    """Without effect."""
