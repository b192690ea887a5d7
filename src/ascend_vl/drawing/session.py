"""One drawing in a worker: what it holds between slices, and its work cut into units of about one layer."""

import contextlib
import time
from collections.abc import Generator, Iterator, Sequence
from typing import Any, Literal, TypeVar, cast

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
        self._ids = [torch.from_numpy(b.input_ids[:-1].copy()).to(device) for b in job.branches]
        rows = max(len(group) for group in self.groups) * job.denoised_tokens
        self._spare = decoder.spare(max(rows, *(len(ids) for ids in self._ids)), device)
        self._prefix: list[list[KeyValue]] = []
        self._work: Generator[Unit, None, None] = self._units()

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

    def close(self) -> None:
        """End the work and free its tensors. The work holds the session and the session the work, so that otherwise
        they would stay until Python's next collection of cycles."""
        self._work.close()

    def _units(self) -> Generator[Unit, None, None]:
        features = yield from self._see()
        self.phase = "read"
        for k in range(len(self.job.branches)):
            yield from self._read(k, features)
        self.phase = "draw"
        entered = self.decoder.ranks.local(
            lambda: [self.decoder.entering(embed_patches(self.model, p)) for p in self._references]
        )
        for i in range(len(self.scheduler.timesteps)):
            yield from self._step(i, entered or [])
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
        levels = self.decoder.ranks.local(lambda: torch.cat(per_picture).split(self.decoder.hidden_size, dim=-1)) or ()
        if self.job.trace_steps is not None:
            self.decoder.ranks.local(lambda: self._trace_features(levels))
        return list(levels)

    def _trace_features(self, levels: Sequence[torch.Tensor]) -> None:
        seen = [f.float().mul(self.decoder.scale).cpu().numpy() for f in levels]
        self.arrays["b0_cond_image_embeds"] = seen[0]
        self.arrays.update({f"b0_deepstack{i}": f for i, f in enumerate(seen[1:])})

    def _read(self, k: int, features: list[torch.Tensor]) -> Iterator[Unit]:
        """The prefix of branch k, layer by layer, keeping its keys and values."""
        ids = self._ids[k]
        spare = self._spare_rows(len(ids))
        rows = Rows(self.decoder.embed_tokens(ids, spare), self._read_positions[k], (slice(0, len(ids)),), spare)
        seen = self.decoder.ranks.local(lambda: self._put_picture(rows.hidden, ids, features))
        kept: list[KeyValue] = []
        for i in range(len(self.decoder.layers)):
            feature = features[1 + i] if 1 + i < len(features) else None
            pair = self.decoder.causal_layer(rows, i, seen, feature)
            if pair is not None:
                kept.append(pair)
            yield "layer"
        self._prefix.append(kept)

    def _put_picture(self, hidden: torch.Tensor, ids: torch.Tensor, features: list[torch.Tensor]) -> torch.Tensor:
        """Put the main features (tokens, h) into the rows (P, h) of image tokens; (P,) bool where these are."""
        seen = ids == self.model.config.image_token_id
        if features:
            hidden[seen] = features[0].to(hidden.dtype)
        return seen

    def _spare_rows(self, count: int) -> torch.Tensor | None:
        return None if self._spare is None else self._spare[:count]

    def _step(self, i: int, embedded: list[torch.Tensor]) -> Iterator[Unit]:
        """One denoising step: every branch's prediction, guidance, the scheduler."""
        timestep = self.scheduler.timesteps[i]
        t = network_time(timestep)
        one = self.decoder.ranks.local(lambda: self._entering(t, embedded))
        predicted: list[torch.Tensor] = []
        for group in self.groups:
            predicted += yield from self._predict(group, one, keep_all=self.job.traces(i))
        self.decoder.ranks.local(lambda: self._finish_step(i, t, predicted))

    def _entering(self, t: torch.Tensor, embedded: list[torch.Tensor]) -> torch.Tensor:
        """(G, h): timestep token, target and reference patches, the rows of one branch."""
        enter = self.decoder.entering
        return torch.cat([enter(embed_time(self.model, t)), enter(embed_patches(self.model, self.z)), *embedded])

    def _rows(self, group: list[int], one: torch.Tensor) -> Rows:
        """The same rows for each branch of a group, at that branch's positions."""
        count = len(one)
        spans = tuple(slice(j * count, (j + 1) * count) for j in range(len(group)))
        positions = torch.cat([self._draw_positions[k] for k in group], dim=1)
        return Rows(one.repeat(len(group), 1), positions, spans, self._spare_rows(count * len(group)))

    def _predict(self, group: list[int], one: torch.Tensor | None, keep_all: bool) -> Work[list[torch.Tensor]]:
        """Predicted clean patches of some branches, (N, values) each, or (N + R, values) for a trace."""
        count, target, ranks = self.job.denoised_tokens, self.job.target_tokens, self.decoder.ranks
        rows = ranks.local(lambda: self._rows(group, cast(torch.Tensor, one)))
        if rows is None:
            rows = Rows.standing_in(self._spare_rows(count * len(group)))
        for i in range(len(self.decoder.layers)):
            self.decoder.full_layer(rows, i, [self._prefix[k] for k in group])
            yield "layer"
        normed = self.decoder.final_norm(rows)
        if normed is None:
            return []
        last = count if keep_all else 1 + target
        spans = rows.spans
        return ranks.local(lambda: [clean_patches(self.model, normed[span][1:last]) for span in spans]) or []

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
