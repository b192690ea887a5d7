import itertools

import pytest

from ascend_vl.drawing.errors import Refusal
from ascend_vl.drawing.recipes import DEV_TIMESTEPS, DrawingConfig, respaced


def test_published_recipes() -> None:
    config = DrawingConfig()
    full, dev, new = (config.recipe(name, 0) for name in ("full", "dev", "dev-2604"))
    assert (full.scheduler, full.steps, full.guidance, full.shift, full.noise_scale) == ("unipc", 50, 5.0, 3.0, 8.0)
    assert (dev.scheduler, dev.steps, dev.guidance, dev.noise_scale, dev.noise_clip) == ("flash", 28, 0.0, 7.5, 2.5)
    assert (new.noise_scale, new.noise_clip, new.timesteps) == (8.0, 8.0, DEV_TIMESTEPS)
    assert (full.branches, dev.branches) == (2, 1)


@pytest.mark.parametrize(
    ("references", "scheduler", "noise"), [(0, "flash", 7.5), (1, "flow_match", 8.0), (2, "flash", 7.5)]
)
def test_dev_edits_of_one_picture_follow_the_flow(references: int, scheduler: str, noise: float) -> None:
    recipe = DrawingConfig().recipe("dev", references)
    assert (recipe.scheduler, recipe.noise_scale) == (scheduler, noise)


@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        ("/models/HiDream-O1-Image", "full"),
        ("/models/HiDream-O1-Image-Dev", "dev"),
        ("HiDream-ai/HiDream-O1-Image-Dev-2604", "dev-2604"),
        ("/home/developer/hidream", "full"),
    ],
)
def test_a_checkpoint_without_a_block_is_told_by_its_name(name: str, recipe: str) -> None:
    assert DrawingConfig.from_checkpoint({}, name).default_recipe == recipe


def test_a_checkpoints_own_block_decides() -> None:
    block = {
        "recipe": "dev",
        "scheduler": "flash",
        "timesteps": [900, 500, 100],
        "steps": 3,
        "noise_scale": 4.0,
        "noise_clip": 2.0,
        "fix_point": 2048,
        "tms_token_id": 767,
        "resolutions": [[128, 128], [160, 96]],
        "unknown": 1,
    }
    config = DrawingConfig.from_checkpoint({"hidream_o1": block}, "whatever-full")
    own = config.recipe(None, 0)
    assert (own.name, own.timesteps, own.steps, own.noise_scale, own.noise_clip) == (
        "dev",
        (900, 500, 100),
        3,
        4.0,
        2.0,
    )
    assert config.constants.fix_point == 2048 and config.constants.tms_token_id == 767
    assert config.constants.default_size == (128, 128)
    assert config.tasks == ("image_generation", "image_edit")
    fewer = DrawingConfig.from_checkpoint({"hidream_o1": {**block, "tasks": ["image_generation"]}})
    assert fewer.tasks == ("image_generation",)
    # The noise scale is a constant of training, whatever the schedule.
    assert config.recipe("full", 0).noise_scale == config.recipe(None, 1).noise_scale == 4.0


def test_every_constant_can_be_overridden() -> None:
    recipe = DrawingConfig().recipe(
        "full",
        0,
        steps=7,
        guidance=2.0,
        shift=1.0,
        noise_scale=6.0,
        scheduler="flash",
        noise_clip=1.0,
        noise_scale_end=5.0,
    )
    assert (recipe.steps, recipe.guidance, recipe.shift, recipe.scheduler) == (7, 2.0, 1.0, "flash")
    assert (recipe.noise_scale, recipe.noise_scale_end, recipe.noise_clip) == (6.0, 5.0, 1.0)
    assert recipe.timesteps is not None and len(recipe.timesteps) == 7
    assert DrawingConfig().recipe("dev", 0, scheduler="unipc").timesteps is None
    assert DrawingConfig().recipe("dev", 0, timesteps=[900, 300]).steps == 2


@pytest.mark.parametrize("steps", [1, 2, 5, 27, 28, 56, 200])
def test_other_step_counts_run_along_the_same_list(steps: int) -> None:
    times = respaced(DEV_TIMESTEPS, steps)
    assert len(times) == steps and times[0] == 999
    assert all(a > b for a, b in itertools.pairwise(times))
    assert steps == 1 or times[-1] == 8


@pytest.mark.parametrize(
    ("override", "field"),
    [
        ({"steps": 0}, "steps"),
        ({"steps": 201}, "steps"),
        ({"guidance": float("nan")}, "guidance_scale"),
        ({"guidance": -1.0}, "guidance_scale"),
        ({"shift": 0.0}, "shift"),
        ({"noise_scale": float("inf")}, "noise_scale"),
        ({"timesteps": [5, 9]}, "timesteps"),
        ({"timesteps": [1001]}, "timesteps"),
        ({"timesteps": [5, 0]}, "timesteps"),
        ({"timesteps": []}, "timesteps"),
        ({"timesteps": [900, 300], "steps": 3}, "steps"),
        ({"scheduler": "ddim"}, "scheduler"),
    ],
)
def test_values_out_of_range_are_refused_by_name(override: dict, field: str) -> None:
    with pytest.raises(Refusal) as refused:
        DrawingConfig().recipe("dev", 0, **override)
    assert refused.value.param == field


@pytest.mark.parametrize(
    ("recipe", "references", "override", "field"),
    [
        ("dev", 0, {"shift": 3.0}, "shift"),
        ("full", 0, {"shift": 3.0, "timesteps": [900, 300]}, "shift"),
        ("full", 0, {"noise_clip": 1.0}, "noise_clip"),
        ("full", 0, {"noise_scale_end": 1.0}, "noise_scale_end"),
        ("dev", 1, {"noise_clip": 2.5}, "noise_clip"),
    ],
)
def test_what_would_change_nothing_is_refused_and_not_ignored(
    recipe: str, references: int, override: dict, field: str
) -> None:
    with pytest.raises(Refusal, match="drawing-unused") as refused:
        DrawingConfig().recipe(recipe, references, **override)
    assert refused.value.param == field


def test_saying_what_holds_anyway_is_no_mistake() -> None:
    config = DrawingConfig()
    assert config.recipe("dev", 0, shift=1.0) == config.recipe("dev", 0)
    assert config.recipe("full", 0, noise_clip=0.0, noise_scale_end=8.0) == config.recipe("full", 0)
    assert config.recipe("dev", 2, noise_clip=1.0, timesteps=[900, 300], steps=2).noise_clip == 1.0


def test_an_unknown_recipe_names_the_known() -> None:
    with pytest.raises(Refusal) as refused:
        DrawingConfig().recipe("pro", 0)
    assert "dev-2604" in refused.value.why.en
