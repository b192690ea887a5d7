"""Where operators can be called: `torch_npu.NAME`, `torch.ops.npu.NAME`, or an operator of another library.

Operators without side effects and with plain arguments are real operators of library `npu`, so that torch.compile can
trace them; the others are functions.
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch

from npu_emulator.calls import bind, published
from npu_emulator.contract import NpuError, Operator

_kept: list[torch.library.Library] = []
# Parameters that are written to, and operators that write to their first ones.
WRITTEN = frozenset({"out", "key_cache", "value_cache", "C", "var", "cache", "k_cache", "v_cache", "ckv_cache"})
IN_PLACE = frozenset({"npu_apply_rotary_pos_emb", "_npu_rotary_embedding", "npu_format_cast", "npu_interleave_rope"})
PLAIN = (torch.Tensor, int, float, bool, str, type(None))


class Overloads:
    """An operator called like a function, with its overloads as attributes (`.out`)."""

    def __init__(self, name: str, default: Callable[..., Any]) -> None:
        self.__name__ = name
        self.__doc__ = default.__doc__
        self.default = default

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.default(*args, **kwargs)


class NotEmulated:
    """An operator of the published torch_npu that has no body here: it is there to be asked for, not to be called."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raises NpuError, always."""
        raise NpuError(f"npu_emulator: torch_npu.{self.__name__} is published but not emulated", 0)


def define_operators(module: dict[str, Any], operators: dict[str, Operator]) -> None:
    """Put `operators` where their callers look for them; `module` is torch_npu's namespace."""
    for name, operator in operators.items():
        base, _, overload = name.partition(".")
        if operator.namespace == "aten":
            _implement_aten(operator)
        elif operator.namespace != "torch_npu":
            define(operator.namespace, operator)
        elif overload:
            setattr(module[base], overload, bind(operator))
        elif traceable(operator, operators):
            module[name] = define("npu", operator)
        else:
            module[name] = Overloads(name, bind(operator))
            setattr(torch.ops.npu, name, module[name])
    for name in published() - module.keys():
        module[name] = NotEmulated(name)


def traceable(operator: Operator, operators: dict[str, Operator]) -> bool:
    """Whether `operator` has only plain arguments, returns new tensors, writes to none, and has no further
    overloads.
    """
    if operator.schema is not None:
        return True
    parameters = inspect.signature(operator.body).parameters
    if operator.name.endswith("_") or operator.name in IN_PLACE or WRITTEN & parameters.keys() or operator.host:
        return False
    if any(other.startswith(operator.name + ".") for other in operators):
        return False
    kinds = {parameter.kind for parameter in parameters.values()}
    if kinds & {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}:
        return False
    hints = inspect.get_annotations(operator.body, eval_str=True)
    returned = hints.pop("return", None)
    arguments = [kind for hint in hints.values() for kind in getattr(hint, "__args__", (hint,))]
    returns = getattr(returned, "__args__", (returned,))
    return all(kind in PLAIN for kind in arguments) and all(kind is torch.Tensor for kind in returns)


def _implement_aten(operator: Operator) -> None:
    library = torch.library.Library("aten", "IMPL")
    library.impl(operator.name, bind(operator), "PrivateUse1")
    _kept.append(library)


def define(namespace: str, operator: Operator) -> Any:
    """Make `operator` a traceable operator of library `namespace`; what to call."""
    library = torch.library.Library(namespace, "FRAGMENT")
    schema = operator.schema or torch.library.infer_schema(operator.body, mutates_args=())
    library.define(operator.name + schema)
    library.impl(operator.name, bind(operator), "PrivateUse1")
    library.impl(operator.name, operator.body, "Meta")
    _kept.append(library)
    return getattr(getattr(torch.ops, namespace), operator.name)


def declare(namespace: str, schema: str) -> None:
    """Let an operator of library `namespace` exist without a body."""
    library = torch.library.Library(namespace, "FRAGMENT")
    library.define(schema)
    _kept.append(library)
