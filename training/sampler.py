"""Drawing with the trained model: the `flash` rule over the 28 fixed timesteps, on CPU generators."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .batches import NOISE_SCALE, STEPS, drawing_row, pack, pixels_of
from .model import DemoModel
from .world import CELL

NOISE_CLIP = 2.5


def patchify(image: Tensor, patch: int = CELL) -> Tensor:
    """(3, H, W) -> (patches, 3 * patch * patch), row-major, channel first inside a patch."""
    c, h, w = image.shape
    x = image.view(c, h // patch, patch, w // patch, patch).permute(1, 3, 0, 2, 4)
    return x.reshape(-1, c * patch * patch)


def clipped(noise: Tensor, clip: float) -> Tensor:
    """Noise limited to `clip` sample deviations; 0 leaves it alone."""
    if clip <= 0:
        return noise
    limit = clip * noise.std()
    return noise.clamp(-limit, limit)


@torch.no_grad()
def draw(
    net: DemoModel,
    prompts: list[str],
    seeds: list[int],
    size: tuple[int, int] = (128, 128),
    timesteps: tuple[int, ...] = STEPS,
    noise_scale: float = NOISE_SCALE,
    noise_clip: float = NOISE_CLIP,
) -> list[np.ndarray]:
    """One (H, W, 3) uint8 picture per prompt; each depends on its own prompt and seed only."""
    width, height = size
    rows, cols = height // CELL, width // CELL
    packed = pack([drawing_row(p, 1, rows, cols) for p in prompts], causal=False)
    later = [torch.Generator().manual_seed(s + 1) for s in seeds]
    first = [torch.Generator().manual_seed(s + 1) for s in seeds]
    z = noise_scale * torch.stack([patchify(torch.randn(1, 3, height, width, generator=g)[0]) for g in first])
    sigmas = [t / 1000 for t in timesteps] + [0.0]
    for i, t in enumerate(timesteps):
        times = torch.full((len(prompts),), 1.0) - torch.tensor(float(t)) / 1000
        clean = net.denoise(
            packed.ids, packed.positions, packed.allowed, packed.marks == 2, packed.marks == 3, times, z
        ).view_as(z)
        fresh = torch.cat([clipped(torch.randn(1, *z.shape[1:], generator=g), noise_clip) for g in later])
        z = sigmas[i + 1] * noise_scale * fresh + (1 - sigmas[i + 1]) * clean
    return [pixels_of(picture.numpy(), width, height) for picture in z]
