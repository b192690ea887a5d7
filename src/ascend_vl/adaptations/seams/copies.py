"""Copies between host and device inside a module's forward."""

from typing import Any

from ascend_vl.adaptations.engine import require_phase
from ascend_vl.adaptations.record import Replaced
from ascend_vl.adaptations.seams.functions import name_of, where


def make_blocking(module: Any, name: str) -> list[Replaced]:
    """Have `module.forward` run with non_blocking=True taken out of every copy. Raises WrongPhase outside
    "construct".
    """
    require_phase("construct")
    from torch.overrides import TorchFunctionMode

    class Blocking(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            given = dict(kwargs or {})
            if given.get("non_blocking"):
                given["non_blocking"] = False
            return func(*args, **given)

    original = module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        with Blocking():
            return original(*args, **kwargs)

    module.forward = forward
    return [Replaced(f"{name}.forward", where(type(module).forward), name_of(make_blocking))]
