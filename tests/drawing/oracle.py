"""The stored reference values, and the requests they were computed for."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ascend_vl.drawing import references
from ascend_vl.drawing.job import Job, build_job
from ascend_vl.drawing.recipes import Constants, DrawingConfig

DATA = Path(__file__).parents[1] / "data" / "oracle"
CASES = ("t2i", "edit", "dev")
# Not computed by us: inputs, and the second branch's copy of the first one's grid.
INPUTS = {"meta_json", "b0_pixel_values", "s0_vinputs", "b1_image_grid_thw"}
EXACT = ("input_ids", "position_ids", "token_types", "vinput_mask", "timesteps", "image_grid_thw")


def values(case: str) -> dict[str, NDArray[Any]]:
    """Arrays of a case."""
    with np.load(DATA / f"{case}.npz") as stored:
        return {name: stored[name] for name in stored.files}


def meta(case: str) -> dict[str, Any]:
    """What the case asked for."""
    return json.loads(str(values(case)["meta_json"].ravel()[0]))


def pictures(case: str) -> list[Image.Image]:
    """The case's references."""
    return [Image.open(DATA / "ref0.png")] if case == "edit" else []


def job(case: str, tokenizer: Any, image_processor: Any, **changes: Any) -> Job:
    """The case as a job that traces every step."""
    asked = meta(case)
    constants = Constants()
    prepared, size = references.prepare(pictures(case), (asked["width"], asked["height"]), constants)
    recipe = DrawingConfig().recipe("dev" if case == "dev" else "full", len(prepared), steps=asked["steps"])
    return build_job(
        *(asked["prompt"], size, asked["seed"], recipe, prepared, tokenizer, image_processor, constants),
        trace_steps=range(recipe.steps),
        **changes,
    )


def difference(ours: Any, theirs: Any) -> float:
    """Largest difference relative to the largest absolute value of `theirs`."""
    ours, theirs = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    assert ours.shape == theirs.shape
    return float(np.abs(ours - theirs).max() / max(float(np.abs(theirs).max()), 1e-30))


def check(
    arrays: dict[str, NDArray[Any]], case: str, x_pred: float = 1e-5, latent: float = 1e-4, image: int = 1
) -> None:
    """Every stored array against ours: ids, positions, types and times exactly, the rest within the bounds."""
    for name, stored in values(case).items():
        if name in INPUTS:
            continue
        if name.endswith(EXACT):
            assert np.array_equal(arrays[name], stored), name
        elif name == "image":
            assert np.abs(arrays[name].astype(int) - stored.astype(int)).max() <= image, name
        elif name.endswith("x_pred") or "embeds" in name or "deepstack" in name:
            assert difference(arrays[name], stored) <= x_pred, name
        else:
            assert difference(arrays[name], stored) <= latent, name
