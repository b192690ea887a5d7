import json
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ascend_vl.drawing.errors import Refusal
from ascend_vl.drawing.layout import COLOURS, Box, draw_layout, framed, parse_layout


@pytest.mark.parametrize(
    "value",
    [
        [[0.1, 0.5, 0.2, 0.8]],
        [[10, 50, 20, 80]],
        [[0.5, 0.1, 0.8, 0.2]],
        [{"bbox": [0.1, 0.5, 0.2, 0.8], "text": "cat"}],
        {"bboxes": [{"box": [10, 50, 20, 80]}]},
        json.dumps({"layout_bboxes": [[0.1, 0.5, 0.2, 0.8]]}),
    ],
)
def test_every_spelling_of_a_box_is_the_same_box(value: Any) -> None:
    assert parse_layout(value, 1000, 500) == [Box(100, 100, 500, 400)]


def test_beyond_a_hundred_is_pixels_and_clamped() -> None:
    assert parse_layout([[120, 5000, 0, 250]], 1000, 500) == [Box(120, 0, 999, 250)]


@pytest.mark.parametrize(
    "value", ["", "[", [], {}, [[1, 2, 3]], [[0.5, 0.5, 0, 1]], [["a", 1, 2, 3]], [[float("nan"), 1, 0, 1]], [None], 7]
)
def test_an_unusable_layout_is_refused(value: Any) -> None:
    with pytest.raises(Refusal) as refused:
        parse_layout(value, 1000, 500)
    assert refused.value.code == "drawing-layout" and refused.value.param == "layout"


def test_the_five_largest_are_drawn_largest_first() -> None:
    boxes = [Box(0, 0, 50 + 100 * k, 50 + 100 * k) for k in range(7)]
    picture, colours = draw_layout(boxes, 1024, 1024)
    assert colours == [None, None, COLOURS[4], COLOURS[3], COLOURS[2], COLOURS[1], COLOURS[0]]
    assert picture.size == (1024, 1024)


def test_outlines_are_as_wide_as_published_at_the_published_size() -> None:
    picture, _ = draw_layout([Box(100, 100, 1900, 1900), Box(600, 600, 1400, 1400)], 2048, 2048)
    row = np.asarray(picture)[1000]
    assert ((row == COLOURS[0]).all(1)[:1000]).sum() == 102
    assert ((row == COLOURS[1]).all(1)[:1000]).sum() == 82


def test_a_reference_is_framed_in_its_boxs_colour() -> None:
    picture = Image.new("RGB", (200, 200), (9, 9, 9))
    framed_pixels = np.asarray(framed(picture, 0, [(0, 180, 0)]))
    assert framed_pixels[0, 0].tolist() == [0, 180, 0] and framed_pixels[7, 100].tolist() == [0, 180, 0]
    assert framed_pixels[8, 100].tolist() == [9, 9, 9]
    assert np.asarray(framed(picture, 2, [None]))[0, 0].tolist() == list(COLOURS[2])
