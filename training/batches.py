"""Scenes to tensors: patches, token rows with their positions and masks, and the batch of each training step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from . import language, tokenizer, world
from .language import Lang

SIZES: dict[tuple[int, int], float] = {
    (128, 128): 0.38, (160, 128): 0.07, (128, 160): 0.05, (160, 160): 0.10, (192, 128): 0.08, (128, 192): 0.05,
    (192, 160): 0.05, (160, 192): 0.03, (192, 192): 0.15, (256, 128): 0.03, (128, 256): 0.01,
}  # fmt: skip
FIX_POINT = 4096
NOISE_SCALE = 4.0
STEPS = (999, 987, 974, 960, 945, 929, 913, 895, 877, 857, 836, 814, 790, 764, 737, 707, 675, 640, 602, 560, 515, 464,
         409, 347, 278, 199, 110, 8)  # fmt: skip
SYSTEM_PROMPTS = ("You are a helpful assistant.", "You are a helpful assistant", "你是一个有用的助手。")
IGNORE = -100


def vision_patches(pixels: np.ndarray, patch: int = 16, merge: int = 2) -> np.ndarray:
    """(H, W, 3) uint8 -> (patches, 3 * 2 * 16 * 16), merge block after merge block, the still frame given twice."""
    h, w, _ = pixels.shape
    x = pixels.astype(np.float32) / 255
    x = ((x - 0.5) / 0.5).transpose(2, 0, 1)
    x = x.reshape(3, h // patch // merge, merge, patch, w // patch // merge, merge, patch)
    x = x.transpose(1, 4, 2, 5, 0, 3, 6).reshape(-1, 3, 1, patch, patch)
    return np.repeat(x, 2, axis=2).reshape(x.shape[0], -1)


def pixel_patches(pixels: np.ndarray, patch: int = 32) -> np.ndarray:
    """(H, W, 3) uint8 -> (patches, 3 * 32 * 32) in [-1, 1], row-major, channel first inside a patch."""
    h, w, _ = pixels.shape
    x = (pixels.astype(np.float32) / 255 - 0.5) / 0.5
    x = x.reshape(h // patch, patch, w // patch, patch, 3).transpose(0, 2, 4, 1, 3)
    return x.reshape(-1, 3 * patch * patch)


def pixels_of(patches: np.ndarray, width: int, height: int, patch: int = 32) -> np.ndarray:
    """The inverse of pixel_patches, rounded to uint8."""
    x = patches.reshape(height // patch, width // patch, 3, patch, patch).transpose(0, 3, 1, 4, 2)
    return np.clip(np.rint((x.reshape(height, width, 3) + 1) * 127.5), 0, 255).astype(np.uint8)


def encode(text: str) -> list[int]:
    return tokenizer.shared().encode(text).ids


@dataclass
class Row:
    """One packed row: a shared prefix (segment 0) and segments that see the prefix and themselves only."""

    ids: list[int] = field(default_factory=list)
    positions: list[tuple[int, int, int]] = field(default_factory=list)
    segments: list[int] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)  # the id to predict at this token, or IGNORE
    weights: list[float] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)  # 1 picture feature, 2 timestep, 3 target patch
    next_position: int = 0
    prefix_end: int = 0
    hints: list[tuple[int, int, int]] = field(default_factory=list)  # token, place, picture of a thing named there
    answers: list[tuple[str, Lang, int, int]] = field(default_factory=list)  # kind, language, first and last target + 1

    def _add(self, token: int, position: tuple[int, int, int], segment: int, mark: int = 0) -> None:
        self.ids.append(token)
        self.positions.append(position)
        self.segments.append(segment)
        self.marks.append(mark)
        self.targets.append(IGNORE)
        self.weights.append(0.0)

    def text(self, ids: Sequence[int], segment: int = 0) -> None:
        for token in ids:
            self._add(token, (self.next_position,) * 3, segment)
            self.next_position += 1

    def picture(self, rows: int, cols: int) -> None:
        """The features of one picture (a grid of merged tokens), in the prefix."""
        self.text([tokenizer.token("<|vision_start|>")])
        p = self.next_position
        for r in range(rows):
            for c in range(cols):
                self._add(tokenizer.token("<|image_pad|>"), (p, p + r, p + c), 0, mark=1)
        self.next_position = p + max(rows, cols)
        self.text([tokenizer.token("<|vision_end|>")])

    def close_prefix(self) -> None:
        self.prefix_end = self.next_position

    def hint(self, question: str, mentions: list[language.Mention]) -> None:
        """Note which tokens of the question that comes next end the name of a thing that is there."""
        ends = [end for _, end in tokenizer.shared().encode(question).offsets]
        for m in mentions:
            if m.end in ends:
                place = -1 if m.place is None else world.SINGLE_PLACES.index(m.place)
                self.hints.append((len(self.ids) + ends.index(m.end), place, m.picture))

    def answer(self, kind: str, lang: Lang, question: str, answer: str) -> None:
        """One question segment with its answer as the target."""
        self.next_position = self.prefix_end
        segment = max(self.segments) + 1
        end = tokenizer.token("<|im_end|>")
        turn = [end, *encode("\n"), tokenizer.token("<|im_start|>"), *encode("assistant\n")]
        self.text([*encode(question), *turn], segment)
        wanted = [*encode(answer), end]
        start = len(self.ids) - 1
        self.text(wanted[:-1], segment)
        for i, token in enumerate(wanted):
            self.targets[start + i] = token
            self.weights[start + i] = len(wanted) ** -0.5
        self.answers.append((kind, lang, start, start + len(wanted)))

    def canvas(self, rows: int, cols: int) -> None:
        """One timestep token and a grid of target patches, as a segment of its own."""
        segment = max(self.segments) + 1
        self._add(tokenizer.token("<|tms_token|>"), (self.prefix_end,) * 3, segment, mark=2)
        for r in range(rows):
            for c in range(cols):
                at = (FIX_POINT, FIX_POINT + r, FIX_POINT + c)
                self._add(tokenizer.token("<|image_pad|>"), at, segment, mark=3)


@dataclass
class Packed:
    ids: Tensor
    positions: Tensor  # (3, batch, tokens)
    allowed: Tensor  # (batch, tokens, tokens)
    marks: Tensor
    targets: Tensor
    weights: Tensor
    hints: Tensor  # (hints, 4): row, token, place or -1, picture


def pack(rows: list[Row], causal: bool) -> Packed:
    """Rows of different length, padded at the end. In canvases (causal False) a segment sees all of itself."""
    n = max(len(r.ids) for r in rows)

    def grid(values: list[list[int]], fill: int) -> Tensor:
        return torch.tensor([v + [fill] * (n - len(v)) for v in values])

    segments = grid([r.segments for r in rows], -1)
    seg_i, seg_j = segments.unsqueeze(2), segments.unsqueeze(1)
    order = torch.ones(n, n, dtype=torch.bool).tril()
    if not causal:
        order = order | ((seg_i > 0) & (seg_j >= 0))
    allowed = order & (((seg_j == 0) & (seg_i >= 0)) | (seg_j == seg_i))
    positions = torch.tensor([[list(p) for p in r.positions] + [[0, 0, 0]] * (n - len(r.ids)) for r in rows])
    return Packed(
        grid([r.ids for r in rows], 0),
        positions.permute(2, 0, 1),
        allowed,
        grid([r.marks for r in rows], 0),
        grid([r.targets for r in rows], IGNORE),
        torch.tensor([r.weights + [0.0] * (n - len(r.ids)) for r in rows]),
        torch.tensor([(i, *hint) for i, r in enumerate(rows) for hint in r.hints], dtype=torch.long).view(-1, 4),
    )


def user_turn(system: str | None = None) -> Row:
    row = Row()
    start, end = tokenizer.token("<|im_start|>"), tokenizer.token("<|im_end|>")
    if system is not None:
        row.text([start, *encode("system\n"), *encode(system), end, *encode("\n")])
    row.text([start, *encode("user\n")])
    return row


def picture_row(grids: list[tuple[int, int]], system: str | None = None) -> Row:
    row = user_turn(system)
    for rows, cols in grids:
        row.picture(rows, cols)
    row.close_prefix()
    return row


def drawing_row(prompt: str, canvases: int, rows: int, cols: int) -> Row:
    row = user_turn()
    end, start = tokenizer.token("<|im_end|>"), tokenizer.token("<|im_start|>")
    row.text([*encode(prompt), end, *encode("\n"), start, *encode("assistant\n"), tokenizer.token("<|boi_token|>")])
    row.close_prefix()
    for _ in range(canvases):
        row.canvas(rows, cols)
    return row


# --- the batch of a step --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BatchConfig:
    images: int = 16
    short_questions: int = 5
    two_image_steps: float = 0.16
    two_image_prompts: int = 10
    pair_questions: int = 5
    extra_images: int = 24  # for the cell loss only
    text_only_steps: float = 0.25
    text_only: int = 6
    drawings: int = 28
    noise_levels: int = 3
    caption_dropout: float = 0.1
    drawing_size: tuple[int, int] = (128, 128)
    late: bool = False  # which question weights


@dataclass
class Batch:
    size: tuple[int, int]
    patches: Tensor  # (images, patches, values); the images of the rows come first
    row_images: int
    cell_color: Tensor
    cell_shape: Tensor
    cell_place: Tensor
    images_a_row: int
    questions: Packed
    text_only: Packed | None
    canvases: Packed
    clean: Tensor  # (drawings, patches, values)
    sigma: Tensor  # (drawings, noise levels)
    noise: Tensor  # (drawings, noise levels, patches, values)


def random_lang(rng: np.random.Generator) -> Lang:
    return "en" if rng.random() < 0.5 else "zh"


def random_size(rng: np.random.Generator) -> tuple[int, int]:
    sizes, weights = list(SIZES), np.array(list(SIZES.values()))
    return sizes[int(rng.choice(len(sizes), p=weights / weights.sum()))]


def training_batch(seed: int, step: int, c: BatchConfig) -> Batch:
    """Everything step number `step` trains on; depends on nothing but (seed, step)."""
    rng = world.stream("train", seed, step)

    def make() -> world.Scene:
        return world.random_scene(rng, "train")

    width, height = size = random_size(rng)
    grid = (height // world.CELL, width // world.CELL)
    rows, pictures = [], []

    def prefix(count: int) -> Row:
        system = str(language.pick(rng, list(SYSTEM_PROMPTS))) if rng.random() < 0.06 else None
        return picture_row([grid] * count, system)

    if rng.random() < c.two_image_steps:
        for _ in range(c.two_image_prompts):
            scenes = language.random_pair(rng, make)
            pictures += [world.render(s, width, height, rng) for s in scenes]
            row = prefix(2)
            for _ in range(c.pair_questions):
                lang = random_lang(rng)
                kind, qa = language.ask_pair(scenes, lang, rng, c.late)
                if kind in language.POINTING:
                    row.hint(qa[0], language.mentions(qa[0], lang, scenes))
                row.answer(kind, lang, *qa)
            rows.append(row)
    else:
        for _ in range(c.images):
            scene = make()
            pictures.append(world.render(scene, width, height, rng))
            row = prefix(1)
            lang = random_lang(rng)
            kind = "caption" if rng.random() < 0.65 else "json"
            long = language.LONG[kind](scene, lang, rng)
            assert long is not None
            row.answer(kind, lang, *long)
            for _ in range(c.short_questions):
                lang = random_lang(rng)
                kind, qa = language.ask_short(scene, lang, rng, c.late)
                if kind in language.POINTING:
                    row.hint(qa[0], language.mentions(qa[0], lang, (scene,)))
                row.answer(kind, lang, *qa)
            rows.append(row)
    row_images = len(pictures)
    pictures += [world.render(make(), width, height, rng) for _ in range(c.extra_images)]

    text_only = None
    if rng.random() < c.text_only_steps:
        row = user_turn()
        row.close_prefix()
        for _ in range(c.text_only):
            lang = random_lang(rng)
            row.answer("no_picture", lang, *language.ask_without_picture(lang, rng, make))
        text_only = pack([row], causal=True)

    dw, dh = c.drawing_size
    canvas_rows, clean = [], []
    for _ in range(c.drawings):
        scene, lang = make(), random_lang(rng)
        chance = rng.random()
        if chance < c.caption_dropout:
            prompt = " "
        elif chance < c.caption_dropout + 0.08:
            prompt, scene = language.short_drawing_prompt(scene, lang)
        else:
            prompt = language.drawing_prompt(scene, lang, rng)
        clean.append(pixel_patches(world.render(scene, dw, dh, rng, "draw").pixels))
        canvas_rows.append(drawing_row(prompt, c.noise_levels, dh // world.CELL, dw // world.CELL))
    level = rng.uniform(0, len(STEPS), (c.drawings, c.noise_levels))
    sigma = np.interp(level, np.arange(len(STEPS) + 1), [*STEPS, 1]) / 1000
    noise = rng.standard_normal((c.drawings, c.noise_levels, *clean[0].shape), dtype=np.float32)
    return Batch(
        size,
        torch.from_numpy(np.stack([vision_patches(p.pixels) for p in pictures])),
        row_images,
        torch.from_numpy(np.stack([p.cell_color for p in pictures])),
        torch.from_numpy(np.stack([p.cell_shape for p in pictures])),
        torch.from_numpy(np.stack([p.cell_place for p in pictures])),
        row_images // len(rows),
        pack(rows, causal=True),
        text_only,
        pack(canvas_rows, causal=False),
        torch.from_numpy(np.stack(clean)),
        torch.from_numpy(sigma.astype(np.float32)),
        torch.from_numpy(noise),
    )
