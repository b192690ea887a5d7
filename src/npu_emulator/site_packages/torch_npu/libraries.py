"""Where operators can be called: `torch_npu.NAME`, `torch.ops.npu.NAME`, or an operator of another library."""

from collections.abc import Callable
from typing import Any

import torch

from npu_emulator.calls import bind
from npu_emulator.contract import Operator

_kept: list[torch.library.Library] = []


class Overloads:
    """An operator called like a function, with its overloads as attributes (`.out`)."""

    def __init__(self, name: str, default: Callable[..., Any]) -> None:
        self.__name__ = name
        self.__doc__ = default.__doc__
        self.default = default

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.default(*args, **kwargs)


def define_operators(module: dict[str, Any], operators: dict[str, Operator]) -> None:
    """Put `operators` where their callers look for them; `module` is torch_npu's namespace."""
    for name, operator in operators.items():
        if operator.namespace == "torch_npu":
            base, _, overload = name.partition(".")
            if overload:
                setattr(module[base], overload, bind(operator))
            else:
                module[name] = Overloads(name, bind(operator))
                setattr(torch.ops.npu, name, module[name])
        elif operator.namespace == "aten":
            _implement_aten(operator)
        else:
            _define(operator)


def _implement_aten(operator: Operator) -> None:
    library = torch.library.Library("aten", "IMPL")
    library.impl(operator.name, bind(operator), "PrivateUse1")
    _kept.append(library)


def _define(operator: Operator) -> None:
    library = torch.library.Library(operator.namespace, "FRAGMENT")
    schema = torch.library.infer_schema(operator.body, mutates_args=())
    library.define(operator.name + schema)
    library.impl(operator.name, bind(operator), "PrivateUse1")
    library.impl(operator.name, operator.body, "Meta")
    _kept.append(library)
