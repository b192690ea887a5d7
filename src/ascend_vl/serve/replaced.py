"""What this process has replaced in somebody else's modules: each object, where it was defined, what took its place."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import Any


@dataclass(frozen=True)
class Replaced:
    """One dotted name; `original` and `ours` are "file:line"."""

    name: str
    original: str
    ours: str
    why: str


_replaced: dict[str, Replaced] = {}
_wrappers: dict[tuple[int, str], Callable[..., Any]] = {}


def place(thing: Any) -> str:
    """Where a function or class is defined, as "file:line"; "?" when Python does not know."""
    try:
        thing = inspect.unwrap(thing)
        return f"{inspect.getsourcefile(thing)}:{inspect.getsourcelines(thing)[1]}"
    except (TypeError, OSError):
        return "?"


def wrap(module: ModuleType, name: str, around: Callable[[Callable[..., Any]], Callable[..., Any]], why: str) -> None:
    """Put `around(original)` in place of `module.name`, once; a module without that name is left alone.

    Modules that share the original share the wrapper, so that a call never passes through it twice.
    """
    original = vars(module).get(name)
    if original is None or hasattr(original, "__ascend_vl__"):
        return
    key = (id(original), around.__name__)
    if key not in _wrappers:
        wrapper = functools.wraps(original)(around(original))
        vars(wrapper)["__ascend_vl__"] = original
        _wrappers[key] = wrapper
    setattr(module, name, _wrappers[key])
    record(f"{module.__name__}.{name}", original=place(original), ours=place(around), why=why)


def record(name: str, original: str, ours: str, why: str) -> None:
    """Note a replacement made elsewhere."""
    _replaced[name] = Replaced(name, original, ours, why)


def replaced() -> list[dict[str, str]]:
    """What has been replaced in this process, in order."""
    return [asdict(item) for item in _replaced.values()]
