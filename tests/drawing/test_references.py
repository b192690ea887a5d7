from typing import Any

import numpy as np
import oracle
import pytest
from PIL import Image

from ascend_vl.drawing import references
from ascend_vl.drawing.errors import Refusal
from ascend_vl.drawing.job import condition_inputs, from_wire, normalised, to_wire
from ascend_vl.drawing.pixels import to_patches, to_pixels
from ascend_vl.drawing.recipes import Constants

C = Constants()


def flat(width: int, height: int, colour: tuple[int, int, int] = (200, 30, 60)) -> Image.Image:
    return Image.new("RGB", (width, height), colour)


def test_patch_and_tower_inputs_are_the_references(tokenizer: Any, image_processor: Any) -> None:
    stored, job = oracle.values("edit"), oracle.job("edit", tokenizer, image_processor)
    patches = np.concatenate([stored["noise_tokens"][0], *(to_patches(p, 32) for p in job.references)])
    assert oracle.difference(patches, stored["s0_vinputs"]) < 1e-6
    assert job.conditions is not None
    assert oracle.difference(normalised(job.conditions), stored["b0_pixel_values"]) < 1e-6
    assert np.array_equal(job.conditions.grid_thw, stored["b0_image_grid_thw"])


@pytest.mark.parametrize(
    ("count", "side", "condition"),
    [(1, 2048, 384), (2, 1536, 384), (3, 1024, 384), (4, 1024, 384), (5, 768, 288), (8, 768, 288), (9, 512, 192)],
)
def test_more_references_are_smaller(count: int, side: int, condition: int) -> None:
    assert references.patch_side(count, 2048, 1024) == side
    assert references.condition_side(count, C) == condition


@pytest.mark.parametrize("width,height", [(200, 150), (3000, 40), (65, 64), (5000, 4000), (31, 900)])
@pytest.mark.parametrize("side", [96, 512, 2048])
def test_fitted_pictures_are_patch_aligned_and_not_larger(width: int, height: int, side: int) -> None:
    try:
        out = references.fit(flat(width, height), side, 32)
    except Refusal as refused:
        assert refused.code == "drawing-reference-aspect"
        return
    assert out.width % 32 == 0 and out.height % 32 == 0
    assert 0 < out.width * out.height <= side * side


def test_keep_aspect_takes_the_size_from_the_picture() -> None:
    _, size = references.prepare([flat(200, 150)], (512, 512), C, keep_aspect=True)
    assert size == (2336, 1760)


def test_nine_small_conditions_are_enlarged_by_the_published_floor(image_processor: Any) -> None:
    prepared, _ = references.prepare([flat(100, 100)] * 9, (512, 512), C)
    assert prepared.conditions[0].shape == (192, 192, 3)
    conditions = condition_inputs(image_processor, prepared.conditions)
    assert conditions is not None and conditions.grids == [(8, 8)] * 9


def test_a_layout_is_one_more_reference() -> None:
    prepared, size = references.prepare([flat(64, 64)], (256, 256), C, layout=[[0.1, 0.6, 0.2, 0.9]])
    assert len(prepared) == 2 and size == (256, 256)
    board = prepared.patches[1]
    assert board[0, 0].tolist() == [0, 0, 0] and (board.reshape(-1, 3) == [255, 0, 0]).all(1).any()


@pytest.mark.parametrize(
    ("count", "changes", "code"),
    [
        (11, {}, "drawing-references"),
        (10, {"layout": [[0, 1, 0, 1]]}, "drawing-references"),
        (0, {"layout": [[0, 1, 0, 1]]}, "drawing-layout"),
        (2, {"keep_aspect": True}, "drawing-aspect"),
        (1, {"keep_aspect": True, "layout": [[0, 1, 0, 1]]}, "drawing-aspect"),
    ],
)
def test_what_does_not_go_together_is_refused(count: int, changes: dict, code: str) -> None:
    with pytest.raises(Refusal) as refused:
        references.prepare([flat(64, 64)] * count, (256, 256), C, **changes)
    assert refused.value.code == code


def test_patches_and_pixels_are_inverse() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (64, 96, 3), dtype=np.uint8)
    assert np.array_equal(to_pixels(to_patches(pixels, 32), 96, 64, 32), pixels)


def test_a_patch_vector_begins_with_the_channel() -> None:
    pixels = np.zeros((32, 32, 3), dtype=np.uint8)
    pixels[0, 1, 2] = 255
    assert np.flatnonzero(to_patches(pixels, 32)[0] > 0).tolist() == [2 * 1024 + 1]


def test_a_job_survives_the_wire(tokenizer: Any, image_processor: Any) -> None:
    job = oracle.job("edit", tokenizer, image_processor, exact=True)
    back = from_wire(to_wire(job))
    assert back.recipe == job.recipe and back.trace_steps == job.trace_steps and back.exact
    for ours, theirs in zip(back.branches, job.branches, strict=True):
        assert np.array_equal(ours.position_ids, theirs.position_ids)
        assert np.array_equal(ours.patch_mask, theirs.patch_mask)
    assert np.array_equal(back.references[0], job.references[0])
    assert back.conditions is not None and job.conditions is not None
    assert np.array_equal(back.conditions.patches, job.conditions.patches)
