"""torch_npu's own functions watched as operators, for blocks that call them directly (vllm-ascend 0.11's tower)."""

import sys
from collections.abc import Callable
from typing import Any

# Function, what kind of operator it is, and the argument its result is written to (None: it is returned).
FUNCTIONS = {
    "_npu_flash_attention_unpad": ("vision attention", "out"),
    "npu_rotary_mul": ("rotary", None),
}


def marker(name: str) -> Any:
    """An object that stands for a function where a module is expected; see `operators.kind_of`."""
    return type(name, (), {"ascend_vl_kind": FUNCTIONS[name][0]})()


def wrapped(seen: Callable[[str, Any, dict[str, Any]], None], copied: Callable[[Any], Any]) -> list[Callable[[], None]]:
    """Have every call told to seen(name, marker, {"args", "kwargs", "output"}); what undoes that.

    Nothing is done in a process without torch_npu.
    """
    library = sys.modules.get("torch_npu")
    undo: list[Callable[[], None]] = []
    for name in FUNCTIONS if library else ():
        original = getattr(library, name, None)
        if original is not None:
            setattr(library, name, _telling(name, original, seen, copied))
            undo.append(lambda name=name, original=original: setattr(library, name, original))  # type: ignore[misc]
    return undo


def _telling(
    name: str,
    original: Callable[..., Any],
    seen: Callable[[str, Any, dict[str, Any]], None],
    copied: Callable[[Any], Any],
) -> Callable[..., Any]:
    written = FUNCTIONS[name][1]

    def call(*given: Any, **named: Any) -> Any:
        kept = {key: copied(value) for key, value in named.items() if key != written}
        record: dict[str, Any] = {"args": [copied(value) for value in given], "kwargs": kept}
        result = original(*given, **named)
        record["output"] = copied(named[written]) if written in named else copied(result)
        seen(name, marker(name), record)
        return result

    return call
