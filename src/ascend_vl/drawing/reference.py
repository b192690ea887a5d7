"""An independent way to the same picture: Transformers' layers, float32, CPU.

It goes the reference's way: each step runs the whole sequence, prefix included, once per guidance branch, under one
dense mask. It shares with the server the pure parts that the stored reference values check (sequence, noise,
schedulers), and nothing of the forward pass.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ascend_vl.drawing.client import Answer
from ascend_vl.drawing.job import Job, normalised
from ascend_vl.drawing.noise import first_noise
from ascend_vl.drawing.pixels import Pixels, to_patches, to_pixels
from ascend_vl.drawing.recipes import DrawingConfig
from ascend_vl.drawing.schedulers import Flash, make_scheduler
from ascend_vl.drawing.trace import Arrays, start_trace, to_npz
from ascend_vl.drawing.velocity import guided_output, network_time

HEAD = {
    "x_embedder.proj1.weight",
    "x_embedder.proj2.weight",
    "x_embedder.proj2.bias",
    "t_embedder1.mlp.0.weight",
    "t_embedder1.mlp.0.bias",
    "t_embedder1.mlp.2.weight",
    "t_embedder1.mlp.2.bias",
    "final_layer2.linear.weight",
    "final_layer2.linear.bias",
}
# The published checkpoints and the reference spell the same tensors with this in front.
HEAD_PREFIX = "model."


def read_head(directory: Path) -> dict[str, torch.Tensor]:
    """The nine tensors of the pixel head, float32, by name without `model.`. Raises KeyError for a missing one."""
    from safetensors import safe_open

    index = directory / "model.safetensors.index.json"
    names = [HEAD_PREFIX + name for name in sorted(HEAD)]
    if index.exists():
        where = json.loads(index.read_text())["weight_map"]
        files = {name: where[name] for name in names}
    else:
        files = dict.fromkeys(names, "model.safetensors")
    tensors = {}
    for name, file in files.items():
        with safe_open(str(directory / file), framework="pt") as shard:
            tensors[name.removeprefix(HEAD_PREFIX)] = shard.get_tensor(name).float()
    return tensors


class ReferenceDrawer:
    """Draws jobs with the checkpoint in `directory`, in float32 on the CPU."""

    def __init__(self, directory: Path) -> None:
        from transformers import AutoImageProcessor, AutoTokenizer, Qwen3VLForConditionalGeneration
        from transformers.utils import logging

        self.tokenizer = AutoTokenizer.from_pretrained(directory)
        self.image_processor = AutoImageProcessor.from_pretrained(directory)
        level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
        logging.set_verbosity_error()  # it would list the nine tensors of the head as unexpected
        logging.disable_progress_bar()
        try:
            loaded: Any = Qwen3VLForConditionalGeneration.from_pretrained(
                directory, dtype=torch.float32, output_loading_info=True
            )
        finally:
            logging.set_verbosity(level)
            if bars:
                logging.enable_progress_bar()
        model, found = loaded
        if found["missing_keys"]:
            raise KeyError(f"missing from {directory}: {sorted(found['missing_keys'])}")
        self.model = model.eval().model
        self.head = read_head(directory)

    @torch.no_grad()
    def draw(self, job: Job, on_step: Callable[[int, torch.Tensor], None] | None = None) -> tuple[Pixels, Arrays]:
        """(picture (H, W, 3), trace). `on_step` gets each step and its predicted clean picture (N, values)."""
        scheduler = make_scheduler(job.recipe, job.seed)
        z = first_noise(job.seed, job.width, job.height, job.recipe.noise_scale, job.patch_size)
        arrays = start_trace(job, z.numpy(), scheduler.timesteps, scheduler.sigmas)
        references = [torch.from_numpy(to_patches(p, job.patch_size)) for p in job.references]
        features = self.see(job)
        if features:
            arrays["b0_cond_image_embeds"] = features[0].numpy()
            arrays.update({f"b0_deepstack{i}": f.numpy() for i, f in enumerate(features[1:])})
        for i, timestep in enumerate(scheduler.timesteps):
            t = network_time(timestep)
            patches = torch.cat([z, *references])
            predicted = [self.predict(job, k, patches, t, features) for k in range(len(job.branches))]
            output = guided_output([x[: len(z)] for x in predicted], z, timestep, job.t_eps, job.recipe.guidance)
            z = scheduler.step(output, z)
            if on_step is not None:
                on_step(i, predicted[0][: len(z)])
            if job.traces(i):
                arrays[f"s{i}_t"] = t.numpy()
                arrays.update({f"s{i}_b{k}_x_pred": x.numpy() for k, x in enumerate(predicted)})
                arrays[f"s{i}_prev"] = z.numpy()[None].copy()
                if isinstance(scheduler, Flash) and scheduler.last_noise is not None:
                    arrays[f"s{i}_flash_noise"] = scheduler.last_noise.numpy()[None]
        picture = to_pixels(z.numpy(), job.width, job.height, job.patch_size)
        arrays["z_final"], arrays["image"] = z.numpy()[None], picture
        return picture, arrays

    def see(self, job: Job) -> list[torch.Tensor]:
        """Features of the condition images, [main, deepstack 0, 1, ...], (tokens, hidden) each; [] without images."""
        if job.conditions is None:
            return []
        pixels = torch.from_numpy(normalised(job.conditions))
        out = self.model.visual(pixels, grid_thw=torch.from_numpy(job.conditions.grid_thw))
        if isinstance(out, tuple):  # Transformers 4.57
            return [out[0], *out[1]]
        return [out.pooler_output, *out.deepstack_features]

    def predict(
        self, job: Job, k: int, patches: torch.Tensor, t: torch.Tensor, features: list[torch.Tensor]
    ) -> torch.Tensor:
        """x_pred (N + R, values) of branch k for patches (N + R, values) at network time t (1,)."""
        branch, text = job.branches[k], self.model.language_model
        ids = torch.from_numpy(branch.input_ids)
        x = text.embed_tokens(ids)
        x[-1] = self._time(t)[0]
        seen = ids == self.model.config.image_token_id
        if features:
            x[seen] = features[0]
        x = torch.cat([x, self._embed(patches)])[None]
        positions = torch.from_numpy(branch.position_ids)[:, None]
        rotary = text.rotary_emb(x, positions)
        mask = dense_mask(torch.from_numpy(branch.token_types))
        for i, layer in enumerate(text.layers):
            out = layer(x, position_embeddings=rotary, attention_mask=mask)
            x = out[0] if isinstance(out, tuple) else out
            if 1 + i < len(features):
                x[0, : len(ids)][seen] += features[1 + i]
        x = text.norm(x)[0, len(ids) :]
        return nn.functional.linear(x, self.head["final_layer2.linear.weight"], self.head["final_layer2.linear.bias"])

    def _embed(self, patches: torch.Tensor) -> torch.Tensor:
        inner = nn.functional.linear(patches, self.head["x_embedder.proj1.weight"])
        return nn.functional.linear(inner, self.head["x_embedder.proj2.weight"], self.head["x_embedder.proj2.bias"])

    def _time(self, t: torch.Tensor) -> torch.Tensor:
        rates = torch.exp(-math.log(10000.0) * torch.arange(128, dtype=torch.float32) / 128)
        angles = (1000.0 * t)[:, None] * rates
        waves = torch.cat([angles.cos(), angles.sin()], dim=-1)
        head = self.head
        inner = nn.functional.linear(waves, head["t_embedder1.mlp.0.weight"], head["t_embedder1.mlp.0.bias"])
        inner = nn.functional.silu(inner)
        return nn.functional.linear(inner, head["t_embedder1.mlp.2.weight"], head["t_embedder1.mlp.2.bias"])


def dense_mask(token_types: torch.Tensor) -> torch.Tensor:
    """(1, 1, S, S) additive float32: causal rows see columns up to themselves, the others see all."""
    size = len(token_types)
    column = torch.arange(size)
    allowed = (column[None, :] <= column[:, None]) | (token_types[:, None] > 0)
    return torch.zeros(size, size).masked_fill_(~allowed, torch.finfo(torch.float32).min)[None, None]


def compare_arrays(ours: Any, theirs: Any) -> float:
    """Largest difference relative to the largest absolute value of `theirs`."""
    ours, theirs = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    return float(np.abs(ours - theirs).max() / max(np.abs(theirs).max(), 1e-30))


def draw_request(
    directory: Path, prompt: str, pictures: Sequence[Path], fields: Mapping[str, Any], on_progress: Any
) -> Answer:
    """What a server answers to the same request, drawn here by the reference. Raises Refusal and ImageRefused."""
    from ascend_vl.drawing.bench import Bench
    from ascend_vl.drawing.request import EditRequest, ImageRequest, parse
    from ascend_vl.images import load_image

    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    drawer = ReferenceDrawer(directory)
    asked = parse(EditRequest if pictures else ImageRequest, {**fields, "prompt": prompt, "partial_images": None})
    drawing = DrawingConfig.from_checkpoint(config, directory.name)
    bench = Bench(drawing, drawer.tokenizer, drawer.image_processor)
    prepared = bench.prepare(asked, lambda: [load_image(path) for path in pictures])
    job = prepared.jobs[0]
    pixels, arrays = drawer.draw(job, lambda i, x: on_progress and on_progress(i + 1, job.recipe.steps))
    data = prepared.file(pixels.tobytes(), "reference")
    trace = to_npz(arrays) if asked.trace else None
    return Answer(data, f"{job.width}x{job.height}", job.seed, job.recipe.name, trace, prepared.usage())
