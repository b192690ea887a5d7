"""The training run: `python -m training.train --out DIR`. Interrupted, the same command goes on where it stopped."""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import world
from .batches import NOISE_SCALE, Batch, BatchConfig, Packed, training_batch
from .model import CellHead, ContextHead, DemoModel

# states after these layers of the text model are what the two context heads read
CONTEXT_LAYER, MENTION_LAYER = 1, 2
LATE_FROM = 1625
CONTEXT_FROM = 2338
MENTION_FROM = 2978
LATE = BatchConfig(late=True, two_image_steps=0.3, extra_images=8, drawings=22)


@dataclass(frozen=True)
class Recipe:
    # the cosine's length from a step on: set anew as the machine's pace and what was still unlearned became known
    lengths: tuple[tuple[int, int], ...] = (
        (0, 3400),
        (146, 3000),
        (LATE_FROM, 3900),
        (MENTION_FROM, 4560),
        (3624, 5700),
        (4430, 5200),
        (4520, 4850),
        (4640, 4710),
    )
    seed: int = 20261130
    warmup: int = 60
    final_rate: float = 0.02
    muon_rate: float = 3e-3
    adam_rate: float = 2.1e-3
    merger_rate: float = 7.5e-4
    clip: float = 1.0
    ema: float = 0.998
    cell_weight: float = 0.4
    context_weight: float = 0.3
    context_from: int = CONTEXT_FROM
    mention_from: int = MENTION_FROM
    pixel_weight: float = 4.0
    bf16: bool = True
    batch: BatchConfig = field(default_factory=BatchConfig)
    late_batch: BatchConfig = field(default_factory=lambda: LATE)
    late_from: int = LATE_FROM

    @property
    def steps(self) -> int:
        return self.lengths[-1][1]

    def length(self, step: int) -> int:
        return max((begin, length) for begin, length in self.lengths if begin <= step)[1]


class Trainee(nn.Module):
    """The model and the throw-away heads, under one roof for the optimizers."""

    def __init__(self, seed: int):
        super().__init__()
        self.net = DemoModel(seed=seed)
        hidden = self.net.config.text.hidden_size
        self.cells = CellHead(hidden, len(world.COLORS), len(world.SHAPES), seed=seed + 1)
        self.context = ContextHead(hidden, len(world.SINGLE_PLACES), seed=seed + 2)
        self.mention = ContextHead(hidden, len(world.SINGLE_PLACES), seed=seed + 3)


def answer_loss(
    net: DemoModel, packed: Packed, seen: tuple[Tensor, list[Tensor]] | None, kept: list[Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """Weighted sum of token losses and the sum of the weights."""
    slots = packed.marks == 1 if seen is not None else None
    hidden = net.hidden(packed.ids, packed.positions, packed.allowed, slots, seen or (torch.empty(0), []), kept)
    wanted = packed.weights > 0
    losses = F.cross_entropy(net.lm_head(hidden[wanted]).float(), packed.targets[wanted], reduction="none")
    weights = packed.weights[wanted]
    return (losses * weights).sum(), weights.sum()


def cell_loss(cells: CellHead, tokens: Tensor, batch: Batch) -> Tensor:
    total = torch.zeros(())
    for logits, labels in zip(cells(tokens), (batch.cell_color, batch.cell_shape), strict=True):
        weight = torch.ones(logits.shape[-1])
        weight[0] = 0.3  # most cells are empty
        flat = logits.float().flatten(0, 1)
        total = total + F.cross_entropy(flat, labels.flatten(), weight=weight, ignore_index=-1)
    return total


def context_loss(context: ContextHead, states: Tensor, batch: Batch) -> Tensor:
    place, picture = context(states[batch.questions.marks == 1])
    labels = batch.cell_place[: batch.row_images]
    weight = torch.ones(place.shape[-1])
    weight[0] = 0.3
    which = torch.arange(batch.row_images) % batch.images_a_row
    which = which[:, None, None].expand_as(labels)
    return F.cross_entropy(place.float(), labels.flatten(), weight=weight, ignore_index=-1) + F.cross_entropy(
        picture.float(), which.flatten()
    )


def mention_loss(mention: ContextHead, states: Tensor, batch: Batch) -> Tensor:
    """At the word of a question that names a thing, one layer on: where that thing is, and in which picture."""
    row, token, place, picture = batch.questions.hints.unbind(1)
    where, which = mention(states[row, token])
    loss = F.cross_entropy(where.float(), place + (place >= 0).long(), ignore_index=-1, reduction="sum")
    return (loss + F.cross_entropy(which.float(), picture, reduction="sum")) / max(1, len(row))


def pixel_loss(net: DemoModel, batch: Batch) -> tuple[Tensor, Tensor]:
    """Weighted and plain squared error of the predicted clean patches."""
    p, sigma = batch.canvases, batch.sigma[..., None, None]
    clean = batch.clean.unsqueeze(1)
    z = (1 - sigma) * clean + sigma * NOISE_SCALE * batch.noise
    predicted = net.denoise(p.ids, p.positions, p.allowed, p.marks == 2, p.marks == 3, 1 - batch.sigma.flatten(), z)
    error = (predicted.float().view_as(z) - clean).square().mean((-1, -2))
    weight = (1 / batch.sigma.clamp(min=0.05)).clamp(max=5)
    return (error * weight).mean(), error.mean()


def losses(trainee: Trainee, batch: Batch, recipe: Recipe, step: int) -> dict[str, Tensor]:
    net = trainee.net
    kept: list[Tensor] = []
    with torch.autocast("cpu", torch.bfloat16, enabled=recipe.bf16):
        rows, cols = batch.size[1] // 16, batch.size[0] // 16
        main, deep = net.see(batch.patches, rows, cols)
        cell = cell_loss(trainee.cells, main, batch)
        n = batch.row_images
        total, weight = answer_loss(net, batch.questions, (main[:n], [d[:n] for d in deep]), kept)
        if batch.text_only is not None:
            extra, extra_weight = answer_loss(net, batch.text_only, None)
            total, weight = total + extra, weight + extra_weight
        weighted, plain = pixel_loss(net, batch)
    ce = total / weight
    loss = ce + recipe.cell_weight * cell + recipe.pixel_weight * weighted
    values = {"loss": loss, "ce": ce, "cell": cell, "pixel": plain}
    with torch.autocast("cpu", torch.bfloat16, enabled=recipe.bf16):
        if step >= recipe.context_from:
            values["context"] = context_loss(trainee.context, kept[CONTEXT_LAYER], batch)
        if step >= recipe.mention_from:
            values["mention"] = mention_loss(trainee.mention, kept[MENTION_LAYER], batch)
    for name in ("context", "mention"):
        if name in values:
            values["loss"] = values["loss"] + recipe.context_weight * values[name]
    return values


def optimizers(trainee: Trainee, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the blocks, AdamW for the rest, the big merger matrices at a lower rate."""
    muon, adam, merger = [], [], []
    for name, p in trainee.named_parameters():
        if p.ndim == 2 and "merger" in name and "linear_fc1" in name:
            merger.append(p)
        elif p.ndim != 2 or any(
            s in name for s in ("embed", "lm_head", "final_layer2", "proj1", "cells", "context", "mention")
        ):
            adam.append(p) if "t_embedder1" not in name or p.ndim != 2 else muon.append(p)
        else:
            muon.append(p)
    made: list[torch.optim.Optimizer] = [
        torch.optim.Muon(muon, lr=recipe.muon_rate, momentum=0.95, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(
            [{"params": adam, "lr": recipe.adam_rate}, {"params": merger, "lr": recipe.merger_rate}],
            betas=(0.9, 0.98),
            weight_decay=0.0,
        ),
    ]
    for optimizer in made:
        for group in optimizer.param_groups:
            group["top_rate"] = group["lr"]
    return made


def rate_factor(step: int, recipe: Recipe) -> float:
    """Linear warm-up, then one cosine to the final rate."""
    if step < recipe.warmup:
        return (step + 1) / recipe.warmup
    done = (step - recipe.warmup) / max(1, recipe.length(step) - recipe.warmup)
    return recipe.final_rate + (1 - recipe.final_rate) * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


class Run:
    """Model, average, optimizers and the step counter; saved and restored as one."""

    def __init__(self, recipe: Recipe):
        self.recipe = recipe
        self.trainee = Trainee(recipe.seed)
        self.average = DemoModel(seed=recipe.seed).requires_grad_(False)
        self.optimizers = optimizers(self.trainee, recipe)
        self.step = 0
        self.seconds = 0.0

    def advance(self) -> dict[str, float]:
        recipe = self.recipe
        batch = training_batch(
            recipe.seed, self.step, recipe.batch if self.step < recipe.late_from else recipe.late_batch
        )
        factor = rate_factor(self.step, self.recipe)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["top_rate"] * factor
            optimizer.zero_grad(set_to_none=True)
        values = losses(self.trainee, batch, recipe, self.step)
        values["loss"].backward()
        norm = nn.utils.clip_grad_norm_(self.trainee.parameters(), self.recipe.clip)
        for optimizer in self.optimizers:
            optimizer.step()
        keep = min(self.recipe.ema, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            for mine, theirs in zip(self.average.parameters(), self.trainee.net.parameters(), strict=True):
                mine.lerp_(theirs, 1 - keep)
        self.step += 1
        return {k: v.item() for k, v in values.items()} | {"norm": norm.item()}

    def save(self, path: Path) -> None:
        state = {
            "trainee": self.trainee.state_dict(),
            "average": self.average.state_dict(),
            "optimizers": [o.state_dict() for o in self.optimizers],
            "step": self.step,
            "seconds": self.seconds,
            "recipe": repr(self.recipe),
            "seed": self.recipe.seed,
        }
        part = path.with_suffix(".part")
        torch.save(state, part)
        os.replace(part, path)

    def load(self, path: Path) -> None:
        state = torch.load(path, weights_only=True)
        self.trainee.load_state_dict(state["trainee"])
        self.average.load_state_dict(state["average"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.step, self.seconds = state["step"], state["seconds"]
        if state["recipe"] != repr(self.recipe):
            print("note: the saved run had another recipe:", state["recipe"], file=sys.stderr)


def duration(seconds: float) -> str:
    return f"{int(seconds) // 3600}:{int(seconds) // 60 % 60:02d}:{int(seconds) % 60:02d}"


def progress(step: int, steps: int, pace: float, means: dict[str, float]) -> str:
    filled = 24 * step // steps
    numbers = " ".join(f"{k} {v:.4f}" for k, v in means.items())
    bar = "#" * filled + "." * (24 - filled)
    return f"[{bar}] {step}/{steps} {pace:.2f} s/step, left {duration(pace * (steps - step))} {numbers}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="training.train", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="where run.pt, log.jsonl and the samples go")
    parser.add_argument("--steps", type=int, help="another length, for a trial: one cosine from the start")
    parser.add_argument("--seed", type=int, default=Recipe.seed)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--until", type=int, help="stop after this step without shortening the schedule")
    parser.add_argument("--save-seconds", type=float, default=300)
    parser.add_argument("--check-seconds", type=float, default=600, help="how often to look at held-out scenes")
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    args.out.mkdir(parents=True, exist_ok=True)
    recipe = Recipe(seed=args.seed) if args.steps is None else Recipe(seed=args.seed, lengths=((0, args.steps),))
    run, path = Run(recipe), args.out / "run.pt"
    if path.exists():
        run.load(path)
        print(f"going on at step {run.step}", flush=True)
    asked_to_stop = False

    def stop(*_: object) -> None:
        nonlocal asked_to_stop
        asked_to_stop = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)

    def log(record: dict) -> None:
        with open(args.out / "log.jsonl", "a") as file:
            file.write(json.dumps(record) + "\n")

    def look() -> None:
        from .evaluate import quick_look

        result = quick_look(run.average, args.out / f"drawings-{run.step:05d}.png")
        log({"step": run.step, "seconds": round(run.seconds), "held_out": result})
        print(f"step {run.step}: {json.dumps(result)}", flush=True)

    recent: list[dict[str, float]] = []
    last = saved = looked = shown = time.monotonic()
    pace, begun = 0.0, run.step
    end = min(args.until or recipe.steps, recipe.steps)
    while run.step < end and not asked_to_stop:
        recent.append(run.advance())
        now = time.monotonic()
        run.seconds += now - last
        average_weight = max(0.02, 1 / (run.step - begun))
        pace += average_weight * (now - last - pace)
        last = now
        if now - shown > 20 or run.step in (1, 5, end):
            means = {k: sum(r[k] for r in recent) / len(recent) for k in recent[0]}
            print(progress(run.step, recipe.steps, pace, means), flush=True)
            log({"step": run.step, "seconds": round(run.seconds), **{k: round(v, 5) for k, v in means.items()}})
            recent, shown = [], now
        if now - saved > args.save_seconds:
            run.save(path)
            saved = time.monotonic()
        if now - looked > args.check_seconds and run.step < end:
            look()
            looked = time.monotonic()
        last_ended = time.monotonic()
        run.seconds += last_ended - now
        last = last_ended
    run.save(path)
    if run.step >= end:
        look()
    return 0


if __name__ == "__main__":
    sys.exit(main())
