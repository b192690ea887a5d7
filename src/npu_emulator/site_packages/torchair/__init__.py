"""Stands in for torchair, the graph compiler, which is not emulated; modules exist because vllm-ascend reloads them."""

from typing import Any

from npu_emulator.contract import NpuError
from torchair import core, fx_summary, npu_fx_compiler, ops, scope

__all__ = ["CompilerConfig", "core", "fx_summary", "get_npu_backend", "npu_fx_compiler", "ops", "patch_for_hcom", "scope"]


class CompilerConfig:
    """Takes every setting."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = CompilerConfig()
        self.__dict__[name] = value
        return value


def get_npu_backend(*args: Any, **kwargs: Any) -> Any:
    """Raises NpuError: there is no compiler."""
    raise NpuError("npu_emulator: torchair's compiler is not emulated; run eagerly or with PIECEWISE graphs", 0)


def patch_for_hcom() -> None:
    """Without effect."""
