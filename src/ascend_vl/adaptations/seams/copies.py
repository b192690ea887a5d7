"""Copies between host and device."""

import functools
from typing import Any

from ascend_vl.adaptations.phase import require_phase
from ascend_vl.adaptations.record import Replaced
from ascend_vl.adaptations.seams.functions import name_of

# Methods of a tensor that copy, and whether non_blocking may also be their second argument.
METHODS = {"to": False, "copy_": True, "npu": False}
MARK = "ascend_vl_blocking"


def make_blocking() -> list[Replaced]:
    """Have every copy of this process wait until it is done. Raises WrongPhase outside "construct".

    The race is the device's, so it is met wherever the framework copies: in the tower, and where the runner brings
    block tables and lengths.
    """
    require_phase("construct")
    import torch

    replaced = []
    for method, second in METHODS.items():
        original = getattr(torch.Tensor, method, None)
        if original is None or hasattr(original, MARK):
            continue
        setattr(torch.Tensor, method, _waiting(original, second))
        replaced.append(Replaced(f"torch.Tensor.{method}", "torch", name_of(make_blocking)))
    return replaced


def _waiting(original: Any, second: bool) -> Any:
    @functools.wraps(original)
    def method(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("non_blocking"):
            kwargs["non_blocking"] = False
        elif second and len(args) > 1:
            args = (args[0], False, *args[2:])
        return original(tensor, *args, **kwargs)

    setattr(method, MARK, True)
    return method
