"""One drawing in a worker: what it holds between slices, and its work cut into units of about one layer."""

import contextlib
import time
from collections.abc import Generator, Iterator
from typing import Any, Literal, TypeVar

import numpy as np
import torch

from ascend_vl.drawing.budget import runs_together
from ascend_vl.drawing.forward import Decoder, KeyValue, Rows
from ascend_vl.drawing.head import clean_patches, embed_patches, embed_time
from ascend_vl.drawing.job import Conditions, Job, normalised
from ascend_vl.drawing.noise import first_noise
from ascend_vl.drawing.pixels import to_patches, to_pixels
from ascend_vl.drawing.schedulers import Flash, make_scheduler
from ascend_vl.drawing.trace import Arrays, start_trace
from ascend_vl.drawing.velocity import guided_output, network_time

Unit = Literal["layer", "step"]
Result = TypeVar("Result")
# Yields after about a layer of work each; its result comes at the end.
Work = Generator[Unit, None, Result]


class NotFinite(RuntimeError):
    """The network's prediction holds infinities or NaN."""


class Session:
    """A drawing on its way. All tensors are on `device`, latents and predictions float32.

    `steps_done` counts finished denoising steps; `phase` is "see" (vision tower), "read" (prefix), "draw" or "done".
    """

    def __init__(self, job: Job, model: Any, decoder: Decoder, device: torch.device) -> None:
        self.job, self.model, self.decoder, self.device = job, model, decoder, device
        self.scheduler = make_scheduler(job.recipe, job.seed)
        noise = first_noise(job.seed, job.width, job.height, job.recipe.noise_scale, job.patch_size)
        self.z = noise.to(device)
        self.steps_done, self.phase = 0, "see"
        self.preview: torch.Tensor | None = None
        self.arrays: Arrays = {}
        if job.trace_steps is not None:
            self.arrays = start_trace(job, noise.numpy(), self.scheduler.timesteps, self.scheduler.sigmas)
        positions = [torch.from_numpy(b.position_ids.copy()).to(device) for b in job.branches]
        self._read_positions = [p[:, : b.prefix] for p, b in zip(positions, job.branches, strict=True)]
        self._draw_positions = [p[:, b.prefix :] for p, b in zip(positions, job.branches, strict=True)]
        self._references = [torch.from_numpy(to_patches(p, job.patch_size)).to(device) for p in job.references]
        self.groups = self._grouped()
        rows = max(len(group) for group in self.groups) * job.denoised_tokens
        self._spare = decoder.spare(rows, device)
        self._prefix: list[list[KeyValue]] = []
        self._work = self._units()

    def _grouped(self) -> list[list[int]]:
        """Branches that run together. Exact drawings run them in turn, so that nothing depends on a rule of speed."""
        branches = list(range(len(self.job.branches)))
        if not self.job.exact and runs_together(self.job.denoised_tokens, len(branches)):
            return [branches]
        return [[k] for k in branches]

    def advance(self, layers: int) -> int:
        """Up to so many layers of work, or to the end of a step; how many it was. Raises what the work raises."""
        context = _deterministic() if self.job.exact else contextlib.nullcontext()
        done = 0
        with torch.inference_mode(), context:
            while done < max(1, layers):
                unit = next(self._work, None)
                if unit == "step":
                    break
                if unit is None:
                    self.phase = "done"
                    break
                done += 1
        return done

    def picture(self) -> np.ndarray:
        """(H, W, 3) uint8 of the latent as it is."""
        return to_pixels(self.z.float().cpu().numpy(), self.job.width, self.job.height, self.job.patch_size)

    def preview_picture(self) -> np.ndarray | None:
        """(H, W, 3) uint8 of the last predicted clean picture; None before the first step."""
        if self.preview is None:
            return None
        return to_pixels(self.preview.cpu().numpy(), self.job.width, self.job.height, self.job.patch_size)

    def _units(self) -> Iterator[Unit]:
        features = yield from self._see()
        self.phase = "read"
        for k in range(len(self.job.branches)):
            yield from self._read(k, features)
        self.phase = "draw"
        embedded = [self.decoder.entering(embed_patches(self.model, p)) for p in self._references]
        for i in range(len(self.scheduler.timesteps)):
            yield from self._step(i, embedded)
            yield "step"
        if self.job.trace_steps is not None:
            self.arrays["z_final"] = self.z.cpu().numpy()[None]
            self.arrays["image"] = self.picture()

    def _see(self) -> Work[list[torch.Tensor]]:
        """Features of the condition images, (tokens, h) each: main, deepstack 0, 1, ... Empty without images."""
        conditions = self.job.conditions
        if conditions is None:
            return []
        per_picture = []
        for picture in _each(conditions):
            per_picture.append(see(self.model, picture, self.device))
            yield "layer"
        levels = torch.cat(per_picture).split(self.decoder.hidden_size, dim=-1)
        if self.job.trace_steps is not None:
            seen = [f.float().mul(self.decoder.scale).cpu().numpy() for f in levels]
            self.arrays["b0_cond_image_embeds"] = seen[0]
            self.arrays.update({f"b0_deepstack{i}": f for i, f in enumerate(seen[1:])})
        return list(levels)

    def _read(self, k: int, features: list[torch.Tensor]) -> Iterator[Unit]:
        """The prefix of branch k, layer by layer, keeping its keys and values."""
        ids = torch.from_numpy(self.job.branches[k].input_ids[:-1].copy()).to(self.device)
        hidden = self.decoder.embed_tokens(ids)
        seen = ids == self.model.config.image_token_id
        if features:
            hidden[seen] = features[0].to(hidden.dtype)
        rows = Rows(hidden, self._read_positions[k], (slice(0, len(ids)),), self.decoder.spare(len(ids), self.device))
        kept: list[KeyValue] = []
        for i in range(len(self.decoder.layers)):
            extra = None
            if 1 + i < len(features):
                extra = torch.zeros_like(hidden)
                extra[seen] = features[1 + i].to(hidden.dtype)
            pair = self.decoder.causal_layer(rows, i, extra)
            if pair is not None:
                kept.append(pair)
            yield "layer"
        self._prefix.append(kept)

    def _step(self, i: int, embedded: list[torch.Tensor]) -> Iterator[Unit]:
        """One denoising step: every branch's prediction, guidance, the scheduler."""
        timestep = self.scheduler.timesteps[i]
        t = network_time(timestep)
        one = torch.cat(
            [
                self.decoder.entering(embed_time(self.model, t)),
                self.decoder.entering(embed_patches(self.model, self.z)),
                *embedded,
            ]
        )
        predicted: list[torch.Tensor] = []
        for group in self.groups:
            predicted += yield from self._predict(group, one, keep_all=self.job.traces(i))
        self.decoder.ranks.local(lambda: self._finish_step(i, t, predicted))

    def _predict(self, group: list[int], one: torch.Tensor, keep_all: bool) -> Work[list[torch.Tensor]]:
        """Predicted clean patches of some branches, (N, values) each, or (N + R, values) for a trace."""
        count, target = len(one), self.job.target_tokens
        spans = tuple(slice(j * count, (j + 1) * count) for j in range(len(group)))
        positions = torch.cat([self._draw_positions[k] for k in group], dim=1)
        spare = None if self._spare is None else self._spare[: count * len(group)]
        rows = Rows(one.repeat(len(group), 1), positions, spans, spare)
        for i in range(len(self.decoder.layers)):
            self.decoder.full_layer(rows, i, [self._prefix[k][i] for k in group])
            yield "layer"
        normed = self.decoder.final_norm(rows)
        if normed is None:
            return []
        last = count if keep_all else 1 + target
        return [clean_patches(self.model, normed[span][1:last]) for span in spans]

    def _finish_step(self, i: int, t: torch.Tensor, predicted: list[torch.Tensor]) -> None:
        job = self.job
        clean = [x[: job.target_tokens] for x in predicted]
        if not all(bool(torch.isfinite(x).all()) for x in clean):
            raise NotFinite(f"step {i}: the prediction is not finite in {self.decoder.dtype}")
        self.preview = clean[0]
        output = guided_output(clean, self.z, self.scheduler.timesteps[i], job.t_eps, job.recipe.guidance)
        self.z = self.scheduler.step(output, self.z)
        self.steps_done = i + 1
        if job.traces(i):
            self.arrays[f"s{i}_t"] = t.numpy()
            self.arrays.update({f"s{i}_b{k}_x_pred": x.cpu().numpy() for k, x in enumerate(predicted)})
            self.arrays[f"s{i}_prev"] = self.z.cpu().numpy()[None].copy()
            if isinstance(self.scheduler, Flash) and self.scheduler.last_noise is not None:
                self.arrays[f"s{i}_flash_noise"] = self.scheduler.last_noise.numpy()[None]


def see(model: Any, conditions: Conditions, device: torch.device) -> torch.Tensor:
    """The vision tower's features, (tokens, (1 + deepstack levels) * h), normalised exactly once.

    Newer vLLM builds normalise inside the tower (`input_norm`) and want raw pixel values there.
    """
    norm = getattr(model.visual, "input_norm", None)
    inside = norm is not None and type(norm).__name__ != "IdentityInputNorm"
    values = torch.from_numpy(conditions.patches.astype(np.float32) if inside else normalised(conditions))
    if not inside:
        values = values.to(model.visual.dtype)
    return model.visual(values.to(device), grid_thw=torch.from_numpy(conditions.grid_thw))


def _each(conditions: Conditions) -> Iterator[Conditions]:
    start = 0
    for row in conditions.grid_thw:
        end = start + int(row.prod())
        yield Conditions(conditions.patches[start:end], row[None], conditions.mean, conditions.std, conditions.merge)
        start = end


@contextlib.contextmanager
def _deterministic() -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def wait_for(device: torch.device) -> float:
    """Waits until the device has done everything queued; seconds waited. A CPU has no queue."""
    started = time.perf_counter()
    if device.type != "cpu":
        getattr(torch, device.type).synchronize(device)
    return time.perf_counter() - started
