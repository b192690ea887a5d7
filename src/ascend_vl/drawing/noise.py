"""Noise by the reference's rule, always from CPU generators, so that a seed means the same on every device."""

from concurrent.futures import Future, ThreadPoolExecutor

import torch

# The reference seeds both of its streams with seed + 1 (models/pipeline.py).
SEED_OFFSET = 1


def first_noise(seed: int, width: int, height: int, scale: float, patch: int) -> torch.Tensor:
    """(N, 3 * patch * patch) float32 on the CPU: noise drawn as one (1, 3, H, W) picture, then cut into patches."""
    generator = torch.Generator("cpu").manual_seed(seed + SEED_OFFSET)
    noise = scale * torch.randn((1, 3, height, width), generator=generator)
    cells = noise[0].reshape(3, height // patch, patch, width // patch, patch).permute(1, 3, 0, 2, 4)
    return cells.reshape(-1, 3 * patch * patch).contiguous()


class StepNoise:
    """The noise that the flash schedule adds: one draw a step, in patch order, from a stream of its own.

    A large draw takes a CPU as long as a slice of the drawing, so the next one is made beside the device's work.
    """

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator("cpu").manual_seed(seed + SEED_OFFSET)
        self._beside = ThreadPoolExecutor(max_workers=1)
        self._next: Future[torch.Tensor] | None = None

    def draw(self, shape: torch.Size) -> torch.Tensor:
        """(N, values) float32 on the CPU, as drawn: neither clipped nor scaled. The shape is the same each time."""
        drawn = self._make(shape) if self._next is None else self._next.result()
        self._next = self._beside.submit(self._make, shape)
        return drawn

    def _make(self, shape: torch.Size) -> torch.Tensor:
        return torch.randn((1, *shape), generator=self._generator)[0]
