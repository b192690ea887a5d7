"""Are the asked shapes and colours in a picture? For checkpoints that draw coloured shapes on plain grounds."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

COLOURS = {
    "red": (225, 30, 30),
    "green": (30, 160, 50),
    "blue": (35, 70, 225),
    "yellow": (250, 220, 30),
    "purple": (135, 45, 175),
    "orange": (250, 140, 20),
    "cyan": (50, 210, 225),
    "pink": (255, 130, 185),
}
GROUNDS = {"white": (255, 255, 255), "black": (0, 0, 0), "gray": (128, 128, 128)}
# Area of the shape over its bounding box: square 1, circle pi/4, triangle 1/2, five-pointed star below. Upper bounds.
FILLS = (("pointed", 0.64), ("circle", 0.89), ("square", 1.01))
# Of the rows of a triangle everything between the outermost pixels belongs to it; between a star's legs nothing does.
UNBROKEN = 0.94
LEAST_AREA = 0.01


@dataclass(frozen=True)
class Seen:
    """What a colour forms in a picture; `x` and `y` of its middle in 0..1."""

    shape: str
    x: float
    y: float
    area: float


@dataclass(frozen=True)
class Asked:
    """A thing that should be there: shape, colour, and where (left, right, top, bottom, center)."""

    colour: str
    shape: str
    place: str


PROMPTS = {
    "a red circle at the center on a white background": (Asked("red", "circle", "center"),),
    "a blue square to the left of a yellow triangle on a gray background": (
        Asked("blue", "square", "left"),
        Asked("yellow", "triangle", "right"),
    ),
    "a green star at the top on a black background": (Asked("green", "star", "top"),),
    "白色背景，左边一个红色圆形，右边一个蓝色正方形": (
        Asked("red", "circle", "left"),
        Asked("blue", "square", "right"),
    ),
}


def look(pixels: NDArray[np.uint8], colour: str) -> Seen | None:
    """What the pixels (H, W, 3) nearest to `colour`, of all colours and grounds, form; None below 1 % of the area."""
    names = [*COLOURS, *GROUNDS]
    palette = np.array([*COLOURS.values(), *GROUNDS.values()], dtype=np.float64)
    distance = np.linalg.norm(pixels[:, :, None, :].astype(np.float64) - palette, axis=-1)
    mask = _solid(distance.argmin(axis=-1) == names.index(colour))
    if mask.mean() < LEAST_AREA:
        return None
    rows, columns = np.flatnonzero(_steady(mask.sum(axis=1))), np.flatnonzero(_steady(mask.sum(axis=0)))
    if len(rows) == 0 or len(columns) == 0:
        return None
    box = mask[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    shape = next(name for name, bound in FILLS if box.mean() <= bound)
    if shape == "pointed":
        shape = "triangle" if _unbroken(box) >= UNBROKEN else "star"
    height, width = mask.shape
    x, y = (columns[0] + columns[-1]) / 2 / width, (rows[0] + rows[-1]) / 2 / height
    return Seen(shape, float(x), float(y), float(mask.mean()))


def _solid(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Pixels of which most neighbours belong too, so that noise forms nothing."""
    padded = np.pad(mask.astype(np.int64), 1)
    height, width = mask.shape
    near = sum(padded[r : r + height, c : c + width] for r in range(3) for c in range(3))
    return mask & (near >= 6)


def _unbroken(box: NDArray[np.bool_]) -> float:
    """Pixels over what lies between the outermost ones of each row."""
    between = np.maximum.accumulate(box, axis=1) & np.maximum.accumulate(box[:, ::-1], axis=1)[:, ::-1]
    return float(box.sum() / between.sum())


def _steady(counts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Lines with more than a stray pixel."""
    return counts >= 2


def matches(pixels: NDArray[np.uint8], asked: Asked) -> bool:
    """Whether the asked thing is there, in its shape and on its side."""
    seen = look(pixels, asked.colour)
    if seen is None or seen.shape != asked.shape:
        return False
    there = {
        "left": seen.x < 0.45,
        "right": seen.x > 0.55,
        "top": seen.y < 0.45,
        "bottom": seen.y > 0.55,
        "center": 0.35 < seen.x < 0.65 and 0.35 < seen.y < 0.65,
    }[asked.place]
    return bool(there)
