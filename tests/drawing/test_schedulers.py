from typing import Any

import numpy as np
import oracle
import pytest
import torch

from ascend_vl.drawing.noise import first_noise
from ascend_vl.drawing.recipes import DrawingConfig
from ascend_vl.drawing.schedulers import Flash, make_scheduler, unipc_sigmas
from ascend_vl.drawing.velocity import guided_output, network_time


@pytest.mark.parametrize("case", oracle.CASES)
def test_first_noise_is_the_references(case: str, tokenizer: Any, image_processor: Any) -> None:
    job = oracle.job(case, tokenizer, image_processor)
    noise = first_noise(job.seed, job.width, job.height, job.recipe.noise_scale, job.patch_size)
    assert np.array_equal(noise.numpy()[None], oracle.values(case)["noise_tokens"])


@pytest.mark.parametrize("case", oracle.CASES)
def test_latents_follow_from_the_references_predictions(case: str, tokenizer: Any, image_processor: Any) -> None:
    stored, job = oracle.values(case), oracle.job(case, tokenizer, image_processor)
    scheduler = make_scheduler(job.recipe, job.seed)
    assert np.array_equal(scheduler.timesteps, stored["timesteps"])
    assert np.array_equal(np.float32(scheduler.sigmas), stored["sigmas"])
    z = torch.from_numpy(stored["noise_tokens"][0])
    for i, timestep in enumerate(scheduler.timesteps):
        if f"s{i}_b0_x_pred" not in stored:
            break
        assert np.array_equal(network_time(timestep).numpy(), stored[f"s{i}_t"])
        clean = [torch.from_numpy(stored[f"s{i}_b{k}_x_pred"])[: len(z)] for k in range(len(job.branches))]
        z = scheduler.step(guided_output(clean, z, timestep, job.t_eps, job.recipe.guidance), z)
        assert oracle.difference(z[None], stored[f"s{i}_prev"]) < 5e-6
        if isinstance(scheduler, Flash):
            assert np.array_equal(scheduler.last_noise.numpy()[None], stored[f"s{i}_flash_noise"])


def test_the_shift_acts_twice_on_the_top_only() -> None:
    timesteps, sigmas = unipc_sigmas(50, 3.0)
    assert (timesteps[0], timesteps[1], timesteps[-2], timesteps[-1]) == (999, 993, 111, 57)
    assert sigmas[0] == pytest.approx(0.999889, abs=1e-6) and sigmas[-1] == 0.0
    assert sigmas[-2] == pytest.approx(0.057674, abs=1e-6)
    assert unipc_sigmas(50, 1.0)[0][-1] == 19


@pytest.mark.parametrize("name", ["full", "dev"])
@pytest.mark.parametrize("references", [0, 1])
def test_a_perfect_network_leads_to_the_picture(name: str, references: int) -> None:
    """Whatever the schedule, a network that always predicts x ends in x."""
    recipe = DrawingConfig().recipe(name, references)
    scheduler = make_scheduler(recipe, 3)
    x = torch.linspace(-1, 1, 60).reshape(4, 15)
    z = recipe.noise_scale * torch.randn(4, 15, generator=torch.Generator().manual_seed(0))
    for timestep in scheduler.timesteps:
        z = scheduler.step(guided_output([x] * recipe.branches, z, timestep, 0.001, recipe.guidance), z)
    # The reference divides by the truncated timestep and multiplies by the true sigma, so full is off by their ratio.
    assert (z - x).abs().max() < (0.35 if name == "full" else 1e-4)


def test_guidance_leads_away_from_the_unconditional_prediction() -> None:
    z, with_prompt, without = torch.zeros(1, 2), torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    output = guided_output([with_prompt, without], z, 500, 0.001, 5.0)
    assert torch.allclose(-output * 0.5, torch.tensor([[5.0, -4.0]]))


def test_seeds_differ_and_repeat() -> None:
    one, again, other = (first_noise(seed, 64, 32, 8.0, 32) for seed in (1, 1, 2))
    assert torch.equal(one, again) and not torch.equal(one, other)
