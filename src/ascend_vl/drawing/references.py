"""Reference pictures: resized for the patch path, and again, smaller, for the vision tower.

Source: models/pipeline.py and models/utils.py of the HiDream-O1-Image reference.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from ascend_vl.drawing.errors import Refusal
from ascend_vl.drawing.layout import draw_layout, framed, parse_layout
from ascend_vl.drawing.pixels import Pixels
from ascend_vl.drawing.recipes import Constants, Size
from ascend_vl.language import Text

MAX_REFERENCES = 10
KEPT_ASPECT_SIDE = 2048


@dataclass(frozen=True)
class References:
    """Pictures of a request, ready: (H, W, 3) uint8 each; `patches` for the patch path, `conditions` for the tower."""

    patches: tuple[Pixels, ...] = ()
    conditions: tuple[Pixels, ...] = ()

    def __len__(self) -> int:
        return len(self.patches)


def patch_side(count: int, width: int, height: int) -> int:
    """Side of the square whose area a resized reference may have, for `count` pictures (layout included)."""
    longest = max(width, height)
    if count == 1:
        return longest
    if count == 2:
        return longest * 48 // 64
    if count <= 4:
        return longest // 2
    return longest * 24 // 64 if count <= 8 else longest // 4


def condition_side(count: int, constants: Constants) -> int:
    """Side of the square whose area a condition image may have, for `count` pictures (layout included)."""
    few, some, many = constants.condition_sizes
    return few if count <= 4 else some if count <= 8 else many


def fit(picture: Image.Image, side: int, patch: int) -> Image.Image:
    """Scaled to an area of at most side x side at multiples of `patch`: covered bicubically, then centre-cropped.

    Pictures twice too large or more are first halved by box filter. Raises Refusal where a side would become zero.
    """
    given = picture.size
    while min(picture.size) >= 2 * side:
        picture = picture.resize((picture.width // 2, picture.height // 2), resample=Image.Resampling.BOX)
    scale = math.sqrt(side * side / (picture.width * picture.height))
    wide, tall = picture.width * scale, picture.height * scale
    # In this order, so that of equal areas the same one wins as in the reference.
    candidates = [
        (w // patch * patch, h // patch * patch)
        for w in (round(wide), math.floor(wide))
        for h in (round(tall), math.floor(tall))
    ]
    candidates.sort(key=lambda size: size[0] * size[1], reverse=True)
    width, height = next(size for size in candidates if size[0] * size[1] <= side * side)
    if width == 0 or height == 0:
        raise _too_narrow(*given)
    across, down = picture.width / width, picture.height / height
    if across < down:
        resized = picture.resize((width, round(picture.height / across)), resample=Image.Resampling.BICUBIC)
        top = (resized.height - height) // 2
        return resized.crop((0, top, width, top + height))
    resized = picture.resize((round(picture.width / down), height), resample=Image.Resampling.BICUBIC)
    left = (resized.width - width) // 2
    return resized.crop((left, 0, left + width, height))


def condition_size(side: int, width: int, height: int) -> Size:
    """(width, height) of the condition image: area side x side at the same aspect, floored to multiples of 32."""
    ratio = width / height
    wide = math.sqrt(side * side * ratio)
    return int(wide / 32) * 32, int(wide / ratio / 32) * 32


def prepare(
    pictures: Sequence[Image.Image],
    size: Size,
    constants: Constants,
    layout: Any = None,
    keep_aspect: bool = False,
) -> tuple[References, Size]:
    """Resized references and the target (width, height), which `keep_aspect` takes from the one reference.

    Raises Refusal: too many pictures, a layout without pictures or unusable, keep_aspect without exactly one picture
    or together with a layout, or a picture too narrow.
    """
    _check(pictures, layout, keep_aspect)
    width, height = size
    if not pictures:
        return References(), size
    patch = constants.patch_size
    pictures = [picture.convert("RGB") for picture in pictures]
    if keep_aspect:
        resized = [fit(pictures[0], KEPT_ASPECT_SIDE, patch)]
        width, height = resized[0].size
    else:
        count = len(pictures) + (layout is not None)
        side = patch_side(count, width, height)
        if layout is not None:
            board, colours = draw_layout(parse_layout(layout, width, height), width, height)
            pictures = [framed(fit(p, side, patch), k, colours) for k, p in enumerate(pictures)]
            pictures.append(board)
        resized = [fit(picture, side, patch) for picture in pictures]
    side = condition_side(len(resized), constants)
    conditions = [_condition(picture, side) for picture in resized]
    return References(tuple(map(_array, resized)), tuple(map(_array, conditions))), (width, height)


def _condition(picture: Image.Image, side: int) -> Image.Image:
    width, height = condition_size(side, *picture.size)
    if width == 0 or height == 0:
        raise _too_narrow(*picture.size)
    return picture.resize((width, height), resample=Image.Resampling.LANCZOS)


def _array(picture: Image.Image) -> Pixels:
    return np.asarray(picture, dtype=np.uint8)


def _check(pictures: Sequence[Image.Image], layout: Any, keep_aspect: bool) -> None:
    total = len(pictures) + (layout is not None)
    if total > MAX_REFERENCES:
        raise Refusal(
            "drawing-references",
            Text(f"{total} reference pictures are too many.", f"参考图过多：{total} 张。"),
            Text(
                f"At most {MAX_REFERENCES} are used at once, the layout counted as one.",
                f"最多同时使用 {MAX_REFERENCES} 张（布局也计一张）。",
            ),
            Text("Leave some out.", "请减少参考图。"),
            "image",
        )
    if layout is not None and not pictures:
        raise Refusal(
            "drawing-layout",
            Text("A layout needs at least one reference picture.", "布局需要至少一张参考图。"),
            Text("Its boxes tell where the references go.", "布局中的框表示各参考图的位置。"),
            Text("Add references, or leave the layout out.", "请添加参考图，或去掉布局。"),
            "layout",
        )
    if keep_aspect and (len(pictures) != 1 or layout is not None):
        raise Refusal(
            "drawing-aspect",
            Text("keep_aspect cannot be followed.", "无法保持原图宽高比。"),
            Text("It needs exactly one reference picture and no layout.", "它要求恰好一张参考图且没有布局。"),
            Text("Give a size instead.", "请直接指定尺寸。"),
            "keep_aspect",
        )


def _too_narrow(width: int, height: int) -> Refusal:
    return Refusal(
        "drawing-reference-aspect",
        Text(f"A reference of {width}x{height} cannot be used here.", f"参考图 {width}x{height} 无法使用。"),
        Text("Beside this target one of its sides would be resized to nothing.", "按目标尺寸缩放后其中一边会变为零。"),
        Text("Crop it to a squarer shape, or ask for a larger picture.", "请裁剪成更接近方形，或绘制更大的图片。"),
        "image",
    )
