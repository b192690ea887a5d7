"""Scenes, their split and their pictures, and the detector that judges drawings."""

import itertools

import numpy as np
import pytest

from training import detector, world
from training.world import Scene, Thing


def test_training_never_contains_a_held_out_combination_and_the_evaluation_contains_nothing_else():
    rng = world.stream("test", 1)
    train = [world.random_scene(rng, "train", 2) for _ in range(3000)]
    held = [world.random_scene(rng, "eval", 2) for _ in range(1000)]
    combinations = [{tuple(sorted(s.things)) for s in scenes} for scenes in (train, held)]
    assert not combinations[0] & combinations[1]
    assert all(world.held_out(s) for s in held)


def test_about_a_tenth_of_the_combinations_is_held_out_in_every_order_and_layout():
    things = world.all_things()
    pairs = list(itertools.combinations_with_replacement(things, 2))
    share = np.mean([world.held_out(Scene(p, ("left", "right"), "white")) for p in pairs])
    assert 0.07 < share < 0.13
    for a, b in pairs[::7]:
        verdicts = {
            world.held_out(Scene(order, places, background))
            for order in ((a, b), (b, a))
            for places in world.PAIR_PLACES
            for background in world.BACKGROUNDS
        }
        assert len(verdicts) == 1


def test_every_colour_with_every_shape_is_trained_on():
    rng = world.stream("test", 2)
    seen = {t for _ in range(1500) for t in world.random_scene(rng, "train").things}
    assert seen == set(world.all_things())


def test_the_streams_of_training_and_evaluation_differ():
    assert world.stream("train", 7, 0).random() != world.stream("evaluation", 7, 0).random()
    assert world.stream("train", 7, 0).random() == world.stream("train", 7, 0).random()


@pytest.mark.parametrize("style", ["see", "draw"])
@pytest.mark.parametrize("size", [(128, 128), (192, 128), (192, 192)])
def test_the_detector_reads_rendered_scenes(style, size):
    rng, right = world.stream("test detector", *size), 0
    for i in range(200):
        scene = world.random_scene(rng, "eval" if i % 2 else "train")
        right += detector.judge(scene, detector.detect(world.render(scene, *size, rng, style).pixels))["all"]
    assert right >= 198


def test_the_detector_refuses_what_is_wrong():
    rng = world.stream("test wrong", 0)
    red = Scene((Thing("red", "circle"),), ("left",), "white")
    pair = Scene((Thing("red", "circle"), Thing("blue", "star")), ("left", "right"), "black")
    verdict = detector.judge(pair, detector.detect(world.render(red, 128, 128, rng, "draw").pixels))
    assert not verdict["count"] and not verdict["all"]
    swapped = Scene(pair.things[::-1], pair.places, pair.background)
    verdict = detector.judge(swapped, detector.detect(world.render(pair, 128, 128, rng, "draw").pixels))
    assert verdict["count"] and verdict["layout"] and not verdict["colors in order"] and not verdict["shapes"]
    noise = rng.integers(0, 256, (128, 128, 3)).astype(np.uint8)
    assert not detector.judge(red, detector.detect(noise))["all"]
    assert detector.detect(np.full((128, 128, 3), 255, np.uint8)).scene() is None


def test_regions_are_connected_components():
    mask = np.zeros((20, 20), bool)
    mask[2:5, 2:5] = mask[10:18, 10] = mask[10, 10:18] = mask[17, 10:18] = True
    found = detector.regions(mask)
    assert sorted(int(r.sum()) for r in found) == [9, 22]


def test_cells_name_what_covers_them():
    rng = world.stream("test cells", 0)
    scene = Scene((Thing("red", "square"), Thing("blue", "star")), ("left", "right"), "gray")
    picture = world.render(scene, 192, 128, rng)
    assert picture.pixels.shape == (128, 192, 3) and picture.cell_color.shape == (4, 6)
    left, right = picture.cell_color[:, :3], picture.cell_color[:, 3:]
    assert 1 + list(world.COLORS).index("red") in left and 1 + list(world.COLORS).index("blue") in right
    square, star = (1 + world.SHAPES.index(s) for s in ("square", "star"))
    assert set(np.unique(picture.cell_shape)) <= {-1, 0, square, star}
