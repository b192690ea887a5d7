"""The classical detector that judges drawings. Its rules were fixed before the model was trained.

Background: the palette entry nearest to the border's median. Shapes: connected regions that differ from the border; the
palette colour nearest to the region's median; the template (same bounding box) with the highest overlap, at least 0.70.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from PIL import Image

from .world import BACKGROUNDS, CENTRES, COLORS, SHAPES, SINGLE_PLACES, Scene, Thing, mask_of

FLOOR = 0.70
DIFFERENCE = 60.0  # RGB distance from the background that makes a pixel foreground
SMALLEST = 0.012  # share of the picture below which a region is dust
GRID = 48
ASPECT = 1.35  # a region whose proportions differ more than this from the template's is no such shape


@dataclass(frozen=True)
class Found:
    color: str
    shape: str | None
    overlap: float
    x: float
    y: float


@dataclass(frozen=True)
class Detection:
    background: str
    found: tuple[Found, ...]

    def scene(self) -> Scene | None:
        """The scene these regions make up, if they make up one."""
        things = [Thing(f.color, f.shape or "unknown") for f in self.found]
        if len(things) == 1:
            x, y = self.found[0].x, self.found[0].y
            place = min(SINGLE_PLACES, key=lambda p: (x - _at(p)[0]) ** 2 + (y - _at(p)[1]) ** 2)
            return Scene((things[0],), (place,), self.background)
        if len(things) == 2:
            places = ("left", "right") if self._is_row() else ("top", "bottom")
            return Scene((things[0], things[1]), places, self.background)
        return None

    def _is_row(self) -> bool:
        a, b = self.found
        return abs(a.x - b.x) >= abs(a.y - b.y)


def _at(place: str) -> tuple[float, float]:
    dx, dy = CENTRES[place]
    return 0.5 + 0.22 * dx, 0.5 + 0.22 * dy


def nearest(color: np.ndarray, palette: dict[str, tuple[int, int, int]]) -> str:
    return min(palette, key=lambda name: float(np.square(color - np.asarray(palette[name], np.float32)).sum()))


def regions(mask: np.ndarray) -> list[np.ndarray]:
    """Connected regions (four neighbours), by spreading the largest label until nothing changes."""
    h, w = mask.shape
    labels = np.where(mask, np.arange(1, h * w + 1).reshape(h, w), 0)
    while True:
        padded = np.pad(labels, 1)
        spread = np.maximum.reduce([labels, padded[:-2, 1:-1], padded[2:, 1:-1], padded[1:-1, :-2], padded[1:-1, 2:]])
        spread = np.where(mask, spread, 0)
        # a label is the index of a pixel: jump to whatever that pixel has become, which halves the distances
        flat = np.concatenate([[0], spread.ravel()])
        spread = np.where(mask, np.maximum(spread, flat[spread]), 0)
        if np.array_equal(spread, labels):
            break
        labels = spread
    return [labels == value for value in np.unique(labels) if value]


def fitted(mask: np.ndarray) -> tuple[np.ndarray, float]:
    """A region's bounding box resampled to a fixed grid, and its width / height."""
    ys, xs = np.nonzero(mask)
    box = mask[ys.min() : ys.max() + 1, xs.min() : xs.max() + 1]
    image = Image.fromarray(box.astype(np.uint8) * 255).resize((GRID, GRID), Image.Resampling.BILINEAR)
    return np.asarray(image) > 127, box.shape[1] / box.shape[0]


@lru_cache(maxsize=1)
def templates() -> dict[str, tuple[np.ndarray, float]]:
    return {s: fitted(mask_of(s, 128, 128, 80, 256, 256) > 0.5) for s in SHAPES}


def match(mask: np.ndarray) -> tuple[str | None, float]:
    box, aspect = fitted(mask)
    best, overlap = None, 0.0
    for shape, (template, proportion) in templates().items():
        if not 1 / ASPECT < aspect / proportion < ASPECT:
            continue
        iou = float((box & template).sum() / (box | template).sum())
        if iou > overlap:
            best, overlap = shape, iou
    return (best, overlap) if overlap >= FLOOR else (None, overlap)


def detect(pixels: np.ndarray) -> Detection:
    """(H, W, 3) uint8 -> what is drawn, in reading order (left before right in a row, upper before lower otherwise)."""
    image = pixels.astype(np.float32)
    border = np.concatenate([image[:3].reshape(-1, 3), image[-3:].reshape(-1, 3), image[:, :3].reshape(-1, 3),
                             image[:, -3:].reshape(-1, 3)])  # fmt: skip
    ground = np.median(border, axis=0)
    h, w, _ = image.shape
    found = []
    for mask in regions(np.sqrt(np.square(image - ground).sum(-1)) > DIFFERENCE):
        if mask.sum() < SMALLEST * h * w:
            continue
        ys, xs = np.nonzero(mask)
        shape, overlap = match(mask)
        x, y = (xs.min() + xs.max()) / 2 / w, (ys.min() + ys.max()) / 2 / h
        found.append(Found(nearest(np.median(image[mask], axis=0), COLORS), shape, overlap, float(x), float(y)))
    detection = Detection(nearest(ground, BACKGROUNDS), tuple(found))
    if len(found) == 2:
        row = detection._is_row()
        found.sort(key=lambda f: f.x if row else f.y)
    return Detection(detection.background, tuple(found))


def judge(scene: Scene, detection: Detection) -> dict[str, bool]:
    """What of the wanted scene is right in a drawing."""
    seen = detection.scene()
    count = len(detection.found) == len(scene.things)
    colors = seen is not None and [t.color for t in seen.things] == [t.color for t in scene.things]
    shapes = seen is not None and [t.shape for t in seen.things] == [t.shape for t in scene.things]
    layout = seen is not None and seen.places == scene.places
    background = detection.background == scene.background
    return {
        "count": count,
        "background": background,
        "colors in order": count and colors,
        "layout": count and layout,
        "shapes": count and shapes,
        "all": count and colors and shapes and layout and background,
    }
