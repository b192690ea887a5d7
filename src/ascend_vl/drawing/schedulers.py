"""Three ways from one latent to the next. All arithmetic on latents is float32; coefficients are Python floats.

`step(output, z)` takes output = -(guided velocity) and the latent z the network saw, both (N, values) float32.
"""

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch

from ascend_vl.drawing.noise import StepNoise
from ascend_vl.drawing.recipes import Recipe


class Scheduler(Protocol):
    """`timesteps` (steps,) in thousandths; `sigmas` (steps + 1,), the last one 0."""

    timesteps: list[int]
    sigmas: list[float]

    def step(self, output: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        """The next latent, (N, values) float32."""


def make_scheduler(recipe: Recipe, seed: int) -> Scheduler:
    """The recipe's scheduler at its first step."""
    if recipe.scheduler == "unipc":
        return UniPC(recipe)
    return Flash(recipe, seed) if recipe.scheduler == "flash" else FlowMatch(recipe)


def unipc_sigmas(steps: int, shift: float) -> tuple[list[int], list[float]]:
    """Timesteps and sigmas. The shift acts twice on the top value: once in its training range, once here.

    Source: FlowUniPCMultistepScheduler of the HiDream-O1-Image reference (models/fm_solvers_unipc.py).
    """

    def shifted(x: np.ndarray) -> np.ndarray:
        return shift * x / (1 + (shift - 1) * x)

    top = float(shifted(np.float32(1.0) - np.asarray([0.001], dtype=np.float64).astype(np.float32))[0])
    sigmas = shifted(np.linspace(top, 0.0, steps + 1)[:-1])
    timesteps = [int(t) for t in (sigmas * 1000).astype(np.int64)]
    return timesteps, [float(s) for s in np.append(sigmas, 0.0).astype(np.float32)]


def listed_sigmas(timesteps: Sequence[int]) -> list[float]:
    """Sigmas of a fixed list of timesteps, as float32 values, 0 appended."""
    return [float(s) for s in np.append(np.asarray(timesteps, dtype=np.float64) / 1000, 0.0).astype(np.float32)]


def _lambda(sigma: float) -> float:
    """Half the log signal-to-noise ratio, ln(alpha / sigma), with alpha = 1 - sigma."""
    return math.inf if sigma == 0.0 else math.log1p(-sigma) - math.log(sigma)


class UniPC:
    """UniPC of order 2 (bh2), predicting the clean picture, lower order at the end, corrector on.

    Source: Zhao et al., UniPC (arXiv 2302.04867), with alpha = 1 - sigma.
    """

    def __init__(self, recipe: Recipe) -> None:
        if recipe.timesteps is None:
            self.timesteps, self.sigmas = unipc_sigmas(recipe.steps, recipe.shift)
        else:
            self.timesteps, self.sigmas = list(recipe.timesteps), listed_sigmas(recipe.timesteps)
        self._i = 0
        self._order = 0
        self._clean: list[torch.Tensor] = []
        self._corrected: torch.Tensor | None = None

    def step(self, output: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        """Corrects z with what the network has just said, then predicts the next latent."""
        i = self._i
        clean = z - self.sigmas[i] * output
        sample = z if self._corrected is None else self._correct(clean, self._corrected)
        self._clean = [*self._clean[-1:], clean]
        self._order = min(2, len(self.timesteps) - i, i + 1)
        self._corrected = sample
        self._i += 1
        return self._predict(sample)

    def _interval(self, i: int) -> tuple[float, float, float, float]:
        """(sigma ratio, alpha at the end, h, phi) of the step from sigma i to sigma i + 1."""
        start, end = self.sigmas[i], self.sigmas[i + 1]
        h = _lambda(end) - _lambda(start)
        return end / start, 1.0 - end, h, math.expm1(-h)

    def _predict(self, sample: torch.Tensor) -> torch.Tensor:
        i = self._i - 1
        ratio, alpha, h, phi = self._interval(i)
        out = ratio * sample - (alpha * phi) * self._clean[-1]
        if self._order == 2:
            r = (_lambda(self.sigmas[i - 1]) - _lambda(self.sigmas[i])) / h
            out = out - (alpha * phi * 0.5 / r) * (self._clean[-2] - self._clean[-1])
        return out

    def _correct(self, clean: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
        i = self._i
        ratio, alpha, h, phi = self._interval(i - 1)
        before = self._clean[-1]
        base = ratio * last - (alpha * phi) * before
        if self._order == 1:
            return base - (alpha * phi * 0.5) * (clean - before)
        r = (_lambda(self.sigmas[i - 2]) - _lambda(self.sigmas[i - 1])) / h
        p1 = phi / -h - 1.0
        p2 = p1 / -h - 0.5
        # c solves [[1, 1], [r, 1]] c = [p1 / phi, 2 p2 / phi].
        b1, b2 = p1 / phi, 2.0 * p2 / phi
        c0 = (b2 - b1) / (r - 1.0)
        c1 = b1 - c0
        change = (c0 / r) * (self._clean[-2] - before) + c1 * (clean - before)
        return base - (alpha * phi) * change


class FlowMatch:
    """Euler steps along the flow, over a fixed list of timesteps."""

    def __init__(self, recipe: Recipe) -> None:
        assert recipe.timesteps is not None
        self.timesteps, self.sigmas = list(recipe.timesteps), listed_sigmas(recipe.timesteps)
        self._i = 0

    def step(self, output: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        """z + (change of sigma) * output."""
        i = self._i
        self._i += 1
        return z + (self.sigmas[i + 1] - self.sigmas[i]) * output


class Flash:
    """The distilled model's schedule: jump to the predicted clean picture, put fresh noise back.

    `last_noise` is the draw of the last step, neither clipped nor scaled.
    """

    def __init__(self, recipe: Recipe, seed: int) -> None:
        assert recipe.timesteps is not None
        self.timesteps, self.sigmas = list(recipe.timesteps), listed_sigmas(recipe.timesteps)
        self.last_noise: torch.Tensor | None = None
        self._recipe = recipe
        self._noise = StepNoise(seed)
        self._i = 0

    def step(self, output: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        """sigma' * clipped noise * scale + (1 - sigma') * clean. Draws on the last step too, where sigma' is 0."""
        i = self._i
        self._i += 1
        clean = z - self.sigmas[i] * output
        noise = self.last_noise = self._noise.draw(z.shape)
        if self._recipe.noise_clip > 0:
            limit = self._recipe.noise_clip * float(noise.std())
            noise = noise.clamp(-limit, limit)
        end = self.sigmas[i + 1]
        return (end * self._recipe.noise_scale_at(i)) * noise.to(z.device) + (1.0 - end) * clean
