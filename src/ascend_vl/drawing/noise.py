"""Noise by the reference's rule, always from CPU generators, so that a seed means the same on every device."""

import torch

from ascend_vl.drawing.recipes import Recipe

# The reference seeds both of its streams with seed + 1 (models/pipeline.py).
SEED_OFFSET = 1


def first_noise(seed: int, width: int, height: int, scale: float, patch: int) -> torch.Tensor:
    """(N, 3 * patch * patch) float32 on the CPU: noise drawn as one (1, 3, H, W) picture, then cut into patches."""
    generator = torch.Generator("cpu").manual_seed(seed + SEED_OFFSET)
    noise = scale * torch.randn((1, 3, height, width), generator=generator)
    cells = noise[0].reshape(3, height // patch, patch, width // patch, patch).permute(1, 3, 0, 2, 4)
    return cells.reshape(-1, 3 * patch * patch).contiguous()


class StepNoise:
    """The noise that the flash schedule adds: one draw a step, in patch order, from a stream of its own."""

    def __init__(self, seed: int, recipe: Recipe) -> None:
        self._generator = torch.Generator("cpu").manual_seed(seed + SEED_OFFSET)
        self._recipe = recipe

    def draw(self, shape: torch.Size) -> torch.Tensor:
        """(N, values) float32 on the CPU, as drawn: neither clipped nor scaled."""
        return torch.randn((1, *shape), generator=self._generator)[0]
