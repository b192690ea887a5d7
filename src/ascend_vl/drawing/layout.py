"""Layout boxes: the picture that tells the model where each reference goes.

Boxes are [x1, x2, y1, y2] (both x first). All within 1: fractions; else all within 100: percent; else pixels.
Source: models/utils.py of the HiDream-O1-Image reference.
"""

import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from PIL import Image, ImageDraw

from ascend_vl.drawing.errors import Refusal
from ascend_vl.language import Text

Colour = tuple[int, int, int]

MAX_DRAWN = 5
COLOURS: tuple[Colour, ...] = (
    *((255, 0, 0), (0, 180, 0), (0, 0, 255), (204, 180, 0), (255, 0, 255)),
    *((0, 255, 255), (128, 0, 0), (0, 128, 0), (0, 0, 128), (128, 128, 0)),
)
_KEYS = ("layout_bboxes", "bboxes", "boxes", "bbox_list")


class Box(NamedTuple):
    """Corners in pixels, both inside the picture."""

    x1: int
    y1: int
    x2: int
    y2: int

    @property
    def area(self) -> int:
        """Pixels between the corners."""
        return (self.x2 - self.x1) * (self.y2 - self.y1)


def parse_layout(value: Any, width: int, height: int) -> list[Box]:
    """Boxes of a layout given as JSON text, a list, or an object that holds the list. Raises Refusal."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise _refuse("it is not JSON", "不是合法的 JSON") from None
    if isinstance(value, dict):
        value = next((value[key] for key in _KEYS if key in value), None)
    if not isinstance(value, list) or not value:
        raise _refuse("it must be a list of boxes", "应为非空的框列表")
    return [_box(item, width, height) for item in value]


def _box(item: Any, width: int, height: int) -> Box:
    corners = (item.get("bbox") or item.get("box")) if isinstance(item, dict) else item
    if not isinstance(corners, (list, tuple)) or len(corners) != 4:
        raise _refuse(f"{item!r} is not [x1, x2, y1, y2]", f"{item!r} 不是 [x1, x2, y1, y2]")
    try:
        x1, x2, y1, y2 = (float(v) for v in corners)
    except (TypeError, ValueError):
        raise _refuse(f"{item!r} is not made of numbers", f"{item!r} 不是数字") from None
    largest = max(abs(x1), abs(x2), abs(y1), abs(y2))
    if not math.isfinite(largest):
        raise _refuse(f"{item!r} is not finite", f"{item!r} 不是有限数值")
    if largest <= 100.0:
        unit = 1.0 if largest <= 1.0 else 100.0
        x1, x2, y1, y2 = x1 / unit * width, x2 / unit * width, y1 / unit * height, y2 / unit * height
    (left, right), (top, bottom) = sorted((x1, x2)), sorted((y1, y2))
    box = Box(_inside(left, width), _inside(top, height), _inside(right, width), _inside(bottom, height))
    if box.x2 <= box.x1 or box.y2 <= box.y1:
        raise _refuse(f"{item!r} is empty", f"{item!r} 面积为零")
    return box


def _inside(value: float, side: int) -> int:
    return max(0, min(side - 1, round(value)))


def draw_layout(boxes: Sequence[Box], width: int, height: int) -> tuple[Image.Image, list[Colour | None]]:
    """The five largest boxes, largest first, as outlines on black; and each box's colour (None: not drawn)."""
    thickest = int(math.sqrt(width * height) * 0.05)
    gap = max(1, thickest // MAX_DRAWN)
    picture = Image.new("RGB", (width, height), (0, 0, 0))
    pen = ImageDraw.Draw(picture)
    colours: list[Colour | None] = [None] * len(boxes)
    by_size = sorted(range(len(boxes)), key=lambda k: boxes[k].area, reverse=True)[:MAX_DRAWN]
    for rank, k in enumerate(by_size):
        colours[k] = COLOURS[rank]
        pen.rectangle(list(boxes[k]), outline=COLOURS[rank], width=max(thickest - rank * gap, 5))
    return picture, colours


def framed(picture: Image.Image, k: int, colours: Sequence[Colour | None]) -> Image.Image:
    """Reference `k` with an inner border in the colour of box `k` (its default colour if that box was not drawn)."""
    drawn = colours[k] if k < len(colours) else None
    colour = drawn or COLOURS[k % len(COLOURS)]
    out = picture.convert("RGB").copy()
    pen = ImageDraw.Draw(out)
    width, height = out.size
    for inset in range(int(math.sqrt(width * height) * 0.04)):
        pen.rectangle([inset, inset, width - 1 - inset, height - 1 - inset], outline=colour)
    return out


def _refuse(why_en: str, why_zh: str) -> Refusal:
    return Refusal(
        "drawing-layout",
        Text("The layout cannot be used.", "无法使用该布局。"),
        Text(f"{why_en[0].upper()}{why_en[1:]}.", f"{why_zh}。"),
        Text("Give boxes [x1, x2, y1, y2], as fractions of the picture.", "请以画面比例给出框 [x1, x2, y1, y2]。"),
        "layout",
    )
