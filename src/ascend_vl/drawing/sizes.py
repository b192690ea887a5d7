"""Which sizes can be drawn: any multiple of the patch size, as asked; `snap` offers the reference's list."""

import re

from ascend_vl.drawing.errors import Refusal
from ascend_vl.drawing.recipes import Constants, Size
from ascend_vl.language import Text


def parse_size(text: str, constants: Constants) -> Size:
    """(width, height) of "WxH", or the default size for "auto". Raises Refusal."""
    if text == "auto":
        return constants.default_size
    match = re.fullmatch(r"([0-9]{1,6})[xX×]([0-9]{1,6})", text.strip())
    if match is None:
        width, height = constants.default_size
        raise Refusal(
            "drawing-size",
            Text(f"The size {text!r} is not understood.", f"无法识别尺寸 {text!r}。"),
            Text("A size is WIDTHxHEIGHT in pixels, or auto.", "尺寸应为 宽x高（像素），或 auto。"),
            Text(f"For example {width}x{height}.", f"例如 {width}x{height}。"),
            "size",
        )
    return int(match[1]), int(match[2])


def nearest(width: int, height: int, constants: Constants) -> Size:
    """The allowed size nearest to the asked one, side by side."""
    patch = constants.patch_size
    return max(patch, int(width / patch + 0.5) * patch), max(patch, int(height / patch + 0.5) * patch)


def check_size(width: int, height: int, constants: Constants) -> None:
    """Raises Refusal, naming the nearest allowed size, unless both sides are positive multiples of the patch size."""
    patch = constants.patch_size
    if width % patch == 0 and height % patch == 0 and width > 0 and height > 0:
        return
    w, h = nearest(width, height, constants)
    raise Refusal(
        "drawing-size",
        Text(f"{width}x{height} cannot be drawn.", f"无法绘制 {width}x{height}。"),
        Text(f"Both sides must be multiples of {patch}.", f"宽和高都必须是 {patch} 的倍数。"),
        Text(f"The nearest allowed size is {w}x{h}.", f"最接近的可用尺寸是 {w}x{h}。"),
        "size",
    )


def snap(width: int, height: int, constants: Constants) -> Size:
    """The listed resolution with the most similar aspect ratio (the reference's rule, which ignores the area).

    Raises Refusal if a side is not positive.
    """
    if width <= 0 or height <= 0:
        check_size(width, height, constants)
    wanted = width / height
    return min(constants.resolutions, key=lambda size: abs(size[0] / size[1] - wanted))


def grid(width: int, height: int, constants: Constants) -> tuple[int, int]:
    """(rows, columns) of patches."""
    return height // constants.patch_size, width // constants.patch_size
