"""Putting our function where a framework's stands, in every module that holds the name."""

import inspect
import sys
from collections.abc import Callable
from typing import Any

from ascend_vl.adaptations.phase import require_phase
from ascend_vl.adaptations.record import Replaced


def where(obj: Any) -> str:
    """File and line of the definition of `obj`, for `serve --explain`."""
    try:
        return f"{inspect.getsourcefile(obj)}:{inspect.getsourcelines(obj)[1]}"
    except (TypeError, OSError):
        return "builtin"


def name_of(obj: Any) -> str:
    """Dotted name of a function or class."""
    return f"{obj.__module__}.{obj.__qualname__}"


def rebind(original: Callable[..., Any], ours: Callable[..., Any], prefixes: tuple[str, ...]) -> list[Replaced]:
    """Replace `original` by `ours` wherever a loaded module under one of `prefixes` holds it as a global.

    Raises WrongPhase outside "construct" and "loaded". Returns a line for each module, in order of name.
    """
    require_phase("construct", "loaded")
    replaced = []
    for module_name, module in sorted(sys.modules.items()):
        if module is None or not module_name.startswith(prefixes):
            continue
        for attribute, value in list(vars(module).items()):
            if value is original:
                setattr(module, attribute, ours)
                replaced.append(Replaced(f"{module_name}.{attribute}", where(original), name_of(ours)))
    return replaced
