"""The world of the demo model: one or two coloured shapes on a plain background, and how to draw them."""

from __future__ import annotations

import hashlib
import itertools
import math
import zlib
from dataclasses import dataclass
from typing import Literal

import numpy as np
from PIL import Image, ImageDraw

# The same tables that `verify` looks for in what a checkpoint draws.
from ascend_vl.verify.drawn_shapes import COLOURS as COLORS
from ascend_vl.verify.drawn_shapes import GROUNDS as BACKGROUNDS

SHAPES = ("circle", "square", "triangle", "star")
SINGLE_PLACES = ("left", "right", "top", "bottom", "center")
PAIR_PLACES = (("left", "right"), ("top", "bottom"))
CENTRES = {"left": (-1, 0), "right": (1, 0), "top": (0, -1), "bottom": (0, 1), "center": (0, 0)}
CELL = 32  # one merged vision token and one target patch cover a cell of this many pixels

SPLIT_SEED = 20261130
HELD_OUT_ONE_IN = 10
Split = Literal["train", "eval"]
Style = Literal["see", "draw"]


@dataclass(frozen=True, order=True)
class Thing:
    color: str
    shape: str


@dataclass(frozen=True)
class Scene:
    things: tuple[Thing, ...]
    places: tuple[str, ...]
    background: str


def stream(purpose: str, *numbers: int) -> np.random.Generator:
    """A random stream that depends on nothing but its name and numbers."""
    return np.random.default_rng([zlib.crc32(purpose.encode()), *numbers])


def held_out(scene: Scene) -> bool:
    """Whether this combination of two shapes (in either order, row or column) is kept out of training."""
    if len(scene.things) < 2:
        return False
    text = f"{SPLIT_SEED}:" + "+".join(f"{t.color} {t.shape}" for t in sorted(scene.things))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % HELD_OUT_ONE_IN == 0


def all_things() -> list[Thing]:
    return [Thing(c, s) for c, s in itertools.product(COLORS, SHAPES)]


def random_scene(rng: np.random.Generator, split: Split, count: int | None = None) -> Scene:
    """A scene of the split; pairs of `eval` come only from the held-out combinations, pairs of `train` never do."""
    count = count or (1 if rng.random() < 0.4 else 2)
    colors, backgrounds = list(COLORS), list(BACKGROUNDS)
    while True:
        background = backgrounds[rng.integers(len(backgrounds))]
        first = Thing(colors[rng.integers(8)], SHAPES[rng.integers(4)])
        if count == 1:
            return Scene((first,), (SINGLE_PLACES[rng.integers(5)],), background)
        color = first.color if rng.random() < 0.2 else colors[rng.integers(8)]
        pair = (first, Thing(color, SHAPES[rng.integers(4)]))
        scene = Scene(pair, PAIR_PLACES[rng.integers(2)], background)
        if held_out(scene) == (split == "eval"):
            return scene


def outline(shape: str, x: float, y: float, r: float) -> list[tuple[float, float]]:
    """Corner points of a shape; a circle is given by its bounding box."""
    if shape == "circle":
        return [(x - r, y - r), (x + r, y + r)]
    if shape == "square":
        s = 0.88 * r
        return [(x - s, y - s), (x + s, y - s), (x + s, y + s), (x - s, y + s)]
    if shape == "triangle":
        s = 1.15 * r
        return [(x, y - 0.75 * s), (x + 0.866 * s, y + 0.75 * s), (x - 0.866 * s, y + 0.75 * s)]
    radii, points = (1.1 * r, 0.47 * r), []
    for i in range(10):
        a = math.pi * i / 5
        points.append((x + radii[i % 2] * math.sin(a), y - radii[i % 2] * math.cos(a)))
    return points


def mask_of(shape: str, x: float, y: float, r: float, width: int, height: int, scale: int = 4) -> np.ndarray:
    """Antialiased coverage (0..1) of one shape, drawn enlarged and then averaged."""
    x0, y0 = max(0, int(x - 1.3 * r)), max(0, int(y - 1.3 * r))
    x1, y1 = min(width, int(x + 1.3 * r) + 1), min(height, int(y + 1.3 * r) + 1)
    big = Image.new("L", ((x1 - x0) * scale, (y1 - y0) * scale), 0)
    points = [((px - x0) * scale, (py - y0) * scale) for px, py in outline(shape, x, y, r)]
    if shape == "circle":
        ImageDraw.Draw(big).ellipse([points[0], points[1]], fill=255)
    else:
        ImageDraw.Draw(big).polygon(points, fill=255)
    full = np.zeros((height, width), np.float32)
    full[y0:y1, x0:x1] = np.asarray(big.reduce(scale), np.float32) / 255
    return full


@dataclass(frozen=True)
class Picture:
    pixels: np.ndarray  # (H, W, 3) uint8
    cell_color: np.ndarray  # (H/32, W/32) 0 none, 1.. index into COLORS, -1 undecided
    cell_shape: np.ndarray  # the same for SHAPES
    cell_place: np.ndarray  # the same for SINGLE_PLACES


def render(scene: Scene, width: int, height: int, rng: np.random.Generator, style: Style = "see") -> Picture:
    """Draw a scene. `see` moves, scales and tints it visibly; `draw` hardly, so a caption has nearly one picture."""
    short = min(width, height)
    shift, (low, high), tint = (0.02, (0.9, 1.06), 12) if style == "see" else (0.01, (0.97, 1.03), 3)
    canvas = np.empty((height, width, 3), np.float32)
    canvas[:] = BACKGROUNDS[scene.background]
    canvas += rng.integers(-min(tint, 6), min(tint, 6) + 1)
    rows, cols = height // CELL, width // CELL
    cell_color, cell_shape, cell_place = (np.zeros((rows, cols), np.int64) for _ in range(3))
    reach, radius = (0.22, 0.21) if len(scene.things) == 1 else (0.24, 0.19)
    for thing, place in zip(scene.things, scene.places, strict=True):
        dx, dy = CENTRES[place]
        x = width * (0.5 + reach * dx) + short * rng.uniform(-shift, shift)
        y = height * (0.5 + reach * dy) + short * rng.uniform(-shift, shift)
        mask = mask_of(thing.shape, x, y, short * radius * rng.uniform(low, high), width, height)
        color = np.asarray(COLORS[thing.color], np.float32) + rng.uniform(-tint, tint, 3).astype(np.float32)
        canvas += mask[..., None] * (color - canvas)
        cover = mask[: rows * CELL, : cols * CELL].reshape(rows, CELL, cols, CELL).mean((1, 3))
        for cells, value in (
            (cell_color, list(COLORS).index(thing.color)),
            (cell_shape, SHAPES.index(thing.shape)),
            (cell_place, SINGLE_PLACES.index(place)),
        ):
            cells[cover > 0.3] = value + 1
            cells[(cover > 0.08) & (cover <= 0.3) & (cells == 0)] = -1
    if style == "see" and rng.random() < 0.3:
        canvas += rng.normal(0, rng.uniform(1, 6), canvas.shape).astype(np.float32)
    return Picture(np.clip(canvas + 0.5, 0, 255).astype(np.uint8), cell_color, cell_shape, cell_place)
