"""Environment variables of drawing. The plan reads them too (no torch here), so that a wrong one stops no server."""

import math
import os
from collections.abc import Mapping

from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text

PREFIX = "ASCEND_VL_DRAWING_"
ATTENTION = "ATTENTION"
WAYS = ("torch", "fused", "prompt", "blocks")
# name -> (default, least value); whole numbers where the default is one.
NUMBERS: Mapping[str, tuple[float, float]] = {
    "ACTIVE": (2, 1),
    "QUEUE": (8, 0),
    "SLICE_MS": (50.0, 1.0),
    "TIMEOUT": (3600.0, 1.0),
    "STUCK": (300.0, 1.0),
    # 0: by size.
    "WORKSPACE_MIB": (0, 1),
}


def number(name: str) -> float:
    """The value of ASCEND_VL_DRAWING_name, or its default. Raises AscendVLError `setting-invalid`."""
    default, least = NUMBERS[name]
    text = os.environ.get(PREFIX + name, "").strip()
    if not text:
        return default
    try:
        value: float = int(text) if isinstance(default, int) else float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= least):
        kind = Text("a whole number", "整数") if isinstance(default, int) else Text("a number", "数")
        raise _invalid(
            name, text, Text(f"It must be {kind.en}, {least:g} or more.", f"必须是{kind.zh}，且不小于 {least:g}。")
        )
    return value


def check() -> None:
    """Raises AscendVLError `setting-invalid` for any variable of drawing that cannot be used."""
    for name in NUMBERS:
        number(name)
    text = os.environ.get(PREFIX + ATTENTION)
    if text and text not in WAYS:
        raise _invalid(
            ATTENTION, text, Text(f"It must be one of {', '.join(WAYS)}.", f"必须是 {'、'.join(WAYS)} 之一。")
        )


def _invalid(name: str, text: str, why: Text) -> AscendVLError:
    return AscendVLError(
        "setting-invalid",
        Text(f"{PREFIX}{name}={text} cannot be used.", f"{PREFIX}{name}={text} 无效。"),
        why,
        Text("Correct it or unset it.", "请改正或取消设置。"),
    )
