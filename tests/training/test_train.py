"""The run: data follow from (seed, step), going on equals not stopping, every segment is on its own."""

import itertools

import numpy as np
import pytest
import torch

from training import batches, sampler, world
from training.batches import BatchConfig
from training.model import DemoModel
from training.train import Recipe, Run, main, rate_factor

SMALL = BatchConfig(images=2, short_questions=2, two_image_prompts=1, pair_questions=2, extra_images=1, drawings=2,
                    noise_levels=2, text_only_steps=0.5, text_only=2, two_image_steps=0.5)  # fmt: skip


def same(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


def test_going_on_after_a_stop_equals_not_stopping(tmp_path):
    recipe = Recipe(
        lengths=((0, 8),), warmup=2, batch=SMALL, late_from=1, late_batch=SMALL, context_from=1, mention_from=1
    )
    whole = Run(recipe)
    seen = [whole.advance() for _ in range(4)]
    first = Run(recipe)
    assert [first.advance() for _ in range(2)] == seen[:2]
    first.save(tmp_path / "run.pt")
    second = Run(recipe)
    second.load(tmp_path / "run.pt")
    assert second.step == 2
    assert [second.advance() for _ in range(2)] == seen[2:]
    assert same(whole.trainee, second.trainee) and same(whole.average, second.average)
    for mine, theirs in zip(whole.optimizers, second.optimizers, strict=True):
        a, b = mine.state_dict()["state"], theirs.state_dict()["state"]
        assert a.keys() == b.keys()
        for key in a:
            assert all(torch.equal(torch.as_tensor(a[key][k]), torch.as_tensor(b[key][k])) for k in a[key])


def test_a_batch_depends_on_seed_and_step_only():
    a, b = batches.training_batch(1, 5, SMALL), batches.training_batch(1, 5, SMALL)
    assert torch.equal(a.patches, b.patches) and torch.equal(a.noise, b.noise)
    assert torch.equal(a.questions.ids, b.questions.ids)
    other = batches.training_batch(1, 6, SMALL)
    assert other.patches.shape != a.patches.shape or not torch.equal(other.patches, a.patches)


def test_the_rate_warms_up_and_follows_one_cosine():
    recipe = Recipe(lengths=((0, 100),), warmup=10)
    rates = [rate_factor(s, recipe) for s in range(100)]
    assert rates[0] == pytest.approx(0.1) and max(rates) == 1.0 and rates[9] == 1.0
    assert all(a > b for a, b in itertools.pairwise(rates[10:])) and 0.02 < rates[-1] < 0.03


def test_the_command_stops_and_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr("training.train.Recipe", SmallRecipe)
    monkeypatch.setattr("training.evaluate.quick_look", lambda net, path: {})
    assert main(["--out", str(tmp_path), "--steps", "3", "--until", "1"]) == 0
    assert main(["--out", str(tmp_path), "--steps", "3"]) == 0
    assert torch.load(tmp_path / "run.pt", weights_only=True)["step"] == 3


class SmallRecipe(Recipe):
    def __init__(self, lengths: tuple[tuple[int, int], ...], seed: int = 1):
        super().__init__(lengths=lengths, seed=seed, warmup=1, batch=SMALL)


def test_segments_do_not_see_each_other():
    net = DemoModel(seed=1).requires_grad_(False)

    def hidden(*questions: tuple[str, str]) -> torch.Tensor:
        row = batches.user_turn()
        row.close_prefix()
        for q, a in questions:
            row.answer("any", "en", q, a)
        p = batches.pack([row], causal=True)
        start, end = row.answers[-1][2:]
        return net.hidden(p.ids, p.positions, p.allowed, None, (torch.empty(0), []))[0, start:end]

    alone, together = hidden(("hello", "yes")), hidden(("another question", "a red circle"), ("hello", "yes"))
    assert torch.allclose(alone, together, atol=1e-5)


def test_canvases_see_the_prompt_and_themselves_only():
    net = DemoModel(seed=1).requires_grad_(False)
    noise = torch.randn(2, 16, 3072, generator=torch.Generator().manual_seed(0))
    t = torch.tensor([0.1, 0.7])

    def clean(canvases: int, which: slice) -> torch.Tensor:
        p = batches.pack([batches.drawing_row("a red circle", canvases, 4, 4)], causal=False)
        return net.denoise(
            p.ids, p.positions, p.allowed, p.marks == 2, p.marks == 3, t[which], noise[which]
        )  # fmt: skip

    both = clean(2, slice(0, 2))
    assert torch.allclose(both[16:], clean(1, slice(1, 2)), atol=1e-5)
    assert torch.allclose(both[:16], clean(1, slice(0, 1)), atol=1e-5)


def test_positions_of_a_drawing():
    row = batches.drawing_row("a red circle", 1, 4, 4)
    tms = row.marks.index(2)
    assert row.positions[:tms] == [(i, i, i) for i in range(tms)]
    assert row.positions[tms] == (tms, tms, tms)
    assert row.positions[tms + 1] == (4096, 4096, 4096) and row.positions[-1] == (4096, 4099, 4099)


def test_drawings_have_their_size_and_follow_their_own_seed():
    net = DemoModel(seed=1).requires_grad_(False)
    steps = (999, 500, 8)
    pictures = sampler.draw(net, ["a red circle", "一个蓝色星形", "a red circle"], [1, 2, 3], timesteps=steps)
    assert [p.shape for p in pictures] == [(128, 128, 3)] * 3 and pictures[0].dtype == np.uint8
    alone = sampler.draw(net, ["a red circle"], [1], timesteps=steps)[0]
    assert np.abs(alone.astype(int) - pictures[0]).max() <= 1
    assert not np.array_equal(pictures[0], pictures[2])
    assert sampler.draw(net, ["a"], [1], size=(192, 128), timesteps=(999, 8))[0].shape == (128, 192, 3)


def test_pixel_patches_can_be_put_back():
    rng = world.stream("test pixels", 0)
    pixels = world.render(world.random_scene(rng, "train"), 192, 128, rng).pixels
    assert np.array_equal(batches.pixels_of(batches.pixel_patches(pixels), 192, 128), pixels)
    image = torch.from_numpy((pixels.astype(np.float32) / 255 - 0.5) / 0.5).permute(2, 0, 1)
    assert np.array_equal(sampler.patchify(image).numpy(), batches.pixel_patches(pixels))


def test_noise_is_clipped_at_sample_deviations():
    noise = torch.randn(1, 16, 3072, generator=torch.Generator().manual_seed(0))
    assert sampler.clipped(noise, 2.5).abs().max() == pytest.approx(2.5 * noise.std().item())
    assert torch.equal(sampler.clipped(noise, 0), noise)
