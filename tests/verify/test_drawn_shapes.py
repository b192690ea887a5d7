import numpy as np
import pytest
from PIL import Image, ImageDraw

from ascend_vl.verify.drawn_shapes import COLOURS, GROUNDS, Asked, look, matches


def picture(shape: str, colour: str, ground: str, x: int, y: int, r: int = 30, noise: int = 25) -> np.ndarray:
    out = Image.new("RGB", (128, 128), GROUNDS[ground])
    pen, fill = ImageDraw.Draw(out), COLOURS[colour]
    if shape == "circle":
        pen.ellipse([x - r, y - r, x + r, y + r], fill=fill)
    elif shape == "square":
        pen.rectangle([x - r, y - r, x + r, y + r], fill=fill)
    elif shape == "triangle":
        pen.polygon([(x, y - r), (x - r, y + r), (x + r, y + r)], fill=fill)
    else:
        inner = {"star": 0.4, "thick star": 0.5}[shape]
        angles = [(-90 + 36 * k, r if k % 2 == 0 else r * inner) for k in range(10)]
        corners = [(x + q * np.cos(np.radians(a)), y + q * np.sin(np.radians(a))) for a, q in angles]
        pen.polygon(corners, fill=fill)
    pixels = np.asarray(out).astype(int)
    return np.clip(pixels + np.random.default_rng(0).integers(-noise, noise, pixels.shape), 0, 255).astype(np.uint8)


@pytest.mark.parametrize("shape", ["circle", "square", "triangle", "star", "thick star"])
@pytest.mark.parametrize("colour", ["red", "blue", "yellow", "green"])
@pytest.mark.parametrize("ground", GROUNDS)
def test_a_shape_is_itself_and_no_other(shape: str, colour: str, ground: str) -> None:
    seen = look(picture(shape, colour, ground, 40, 64), colour)
    assert seen is not None and seen.shape == shape.split()[-1] and seen.x < 0.45


def test_another_colour_or_place_or_nothing_is_no_match() -> None:
    pixels = picture("circle", "red", "white", 90, 64)
    assert matches(pixels, Asked("red", "circle", "right"))
    assert not matches(pixels, Asked("red", "circle", "left"))
    assert not matches(pixels, Asked("red", "square", "right"))
    assert not matches(pixels, Asked("blue", "circle", "right"))
    noise = np.random.default_rng(1).integers(0, 256, (128, 128, 3), dtype=np.uint8)
    assert not any(matches(noise, Asked(c, s, "center")) for c in COLOURS for s in ("circle", "triangle", "star"))
