"""The sequence a drawing is computed on: text, timestep token, target patches, reference patches.

    P tokens  chat prompt, condition images inside, ending in <|boi_token|>   causal
    1 token   <|tms_token|>, whose embedding is the timestep                  sees everything
    N tokens  target patches, row-major                                       see everything
    R tokens  reference patches, picture after picture                        see everything

The prefix never sees what follows it, so its keys and values depend on prompt and condition images only.
Source: models/pipeline.py and models/utils.py (positions with a fixed point) of the HiDream-O1-Image reference.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ascend_vl.drawing.errors import Refusal
from ascend_vl.drawing.recipes import Constants
from ascend_vl.language import Text

Ints = NDArray[np.int64]
Grid = tuple[int, int]

UNCONDITIONAL_PROMPT = " "
PLAIN_TEMPLATE = "<|im_start|>user\n{content}<|im_end|>\n<|im_start|>assistant\n"
IMAGE_PAD, VISION_START, VISION_END = "<|image_pad|>", "<|vision_start|>", "<|vision_end|>"


class Tokenizer(Protocol):
    """What is used of a Transformers tokenizer."""

    chat_template: Any

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text."""

    def apply_chat_template(self, conversation: list[dict[str, Any]], **kwargs: Any) -> Any:
        """The text of a conversation."""


@dataclass(frozen=True)
class Branch:
    """One guidance branch. T = P + 1 text tokens, S = T + N + R tokens in all.

    `input_ids` (T,); `position_ids` (3, S), axes time, row, column; `token_types` (S,) 0 causal, 1 full;
    `patch_mask` (S,) bool, true at target and reference patches.
    """

    input_ids: Ints
    position_ids: Ints
    token_types: Ints
    patch_mask: NDArray[np.bool_]

    @property
    def prefix(self) -> int:
        """P: tokens before the timestep token."""
        return len(self.input_ids) - 1


def prompt_text(tokenizer: Tokenizer, prompt: str, condition_grids: Sequence[Grid]) -> str:
    """The conversation as text: one user turn, the condition images (one pad a merged patch) before the prompt."""
    pictures = [f"{VISION_START}{IMAGE_PAD * (rows * columns)}{VISION_END}" for rows, columns in condition_grids]
    if not getattr(tokenizer, "chat_template", None):
        return PLAIN_TEMPLATE.format(content="".join(pictures) + prompt)
    content: Any = prompt
    if pictures:
        content = [{"type": "image"} for _ in pictures] + [{"type": "text", "text": prompt}]
    text = str(
        tokenizer.apply_chat_template(
            [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
        )
    )
    one = f"{VISION_START}{IMAGE_PAD}{VISION_END}"
    if text.count(one) != len(pictures):
        raise _template_refusal()
    for picture in pictures:
        text = text.replace(one, picture.replace(IMAGE_PAD, "\0"), 1)
    return text.replace("\0", IMAGE_PAD)


def check_prompt(prompt: str) -> None:
    """Raises Refusal for an empty prompt, or one that spells a token like <|image_pad|>, which would move the grids."""
    if not prompt.strip():
        raise Refusal(
            "drawing-prompt",
            Text("The prompt is empty.", "提示词为空。"),
            Text("There is nothing to draw.", "没有可绘制的内容。"),
            Text("Say what should be drawn.", "请描述要绘制的内容。"),
            "prompt",
        )
    found = re.search(r"<\|[^|<>\s]{1,40}\|>|\0", prompt)
    if found:
        raise Refusal(
            "drawing-prompt-token",
            Text(f"The prompt contains {found[0]!r}.", f"提示词包含 {found[0]!r}。"),
            Text("It stands for a control token and would break the sequence.", "它代表控制标记，会破坏序列结构。"),
            Text("Write it differently.", "请换一种写法。"),
            "prompt",
        )


def token_id(tokenizer: Tokenizer, token: str, expected: int | None) -> int:
    """The id of a control token. Raises Refusal unless it is one token, and the expected one."""
    ids = list(tokenizer.encode(token, add_special_tokens=False))
    if len(ids) == 1 and (expected is None or ids[0] == expected):
        return int(ids[0])
    raise Refusal(
        "drawing-tokenizer",
        Text(f"{token} is not the token it should be.", f"{token} 不是预期的标记。"),
        Text(f"It encodes to {ids}, expected {expected}.", f"其编码为 {ids}，预期为 {expected}。"),
        Text("Use the tokenizer files that came with the checkpoint.", "请使用权重自带的分词器文件。"),
        status=503,
    )


def build_branch(
    tokenizer: Tokenizer,
    prompt: str,
    target: Grid,
    references: Sequence[Grid],
    conditions: Sequence[Grid],
    constants: Constants,
) -> Branch:
    """Ids, positions and types for one prompt.

    Grids are (rows, columns): target and references in patches, conditions in merged patches of the tower.
    Raises Refusal if the prompt is too long or its tokens are not what they should be.
    """
    tail = [
        token_id(tokenizer, constants.boi_token, constants.boi_token_id),
        token_id(tokenizer, constants.tms_token, constants.tms_token_id),
    ]
    pad = token_id(tokenizer, IMAGE_PAD, None)
    ids = list(tokenizer.encode(prompt_text(tokenizer, prompt, conditions), add_special_tokens=False)) + tail
    if ids.count(pad) != sum(rows * columns for rows, columns in conditions) or ids.count(tail[1]) != 1:
        raise _template_refusal()
    text = text_positions(ids, pad, conditions)
    if int(text.max()) >= constants.fix_point:
        raise Refusal(
            "drawing-prompt-long",
            Text("The prompt is too long to draw.", "提示词过长，无法绘制。"),
            Text(
                f"Its positions reach {int(text.max())}; the picture's begin at {constants.fix_point}.",
                f"其位置到达 {int(text.max())}，而画面位置从 {constants.fix_point} 开始。",
            ),
            Text("Shorten it.", "请缩短提示词。"),
            "prompt",
        )
    positions = np.concatenate([text, patch_positions(target, references, constants.fix_point)], axis=1)
    types = np.zeros(positions.shape[1], dtype=np.int64)
    types[len(ids) - 1 :] = 1
    patches = np.zeros(positions.shape[1], dtype=bool)
    patches[len(ids) :] = True
    return Branch(np.asarray(ids, dtype=np.int64), positions, types, patches)


def text_positions(ids: Sequence[int], pad: int, conditions: Sequence[Grid]) -> Ints:
    """(3, T): text counts up on all axes; an image of grid (h, w) at p takes (p, p + row, p + column), then p grows by
    max(h, w)."""
    parts: list[Ints] = []
    at = next_position = 0
    for rows, columns in conditions:
        start = list(ids).index(pad, at)
        parts.append(np.tile(np.arange(start - at), (3, 1)) + next_position)
        next_position += start - at
        parts.append(_grid_positions(rows, columns) + next_position)
        next_position += max(rows, columns)
        at = start + rows * columns
    parts.append(np.tile(np.arange(len(ids) - at), (3, 1)) + next_position)
    return np.concatenate(parts, axis=1).astype(np.int64)


def patch_positions(target: Grid, references: Sequence[Grid], fix_point: int) -> Ints:
    """(3, N + R): the target at the fixed point, each reference beyond all pictures before it."""
    parts, base = [], fix_point
    for rows, columns in (target, *references):
        parts.append(_grid_positions(rows, columns) + base)
        base += max(rows, columns)
    return np.concatenate(parts, axis=1)


def _grid_positions(rows: int, columns: int) -> Ints:
    row, column = np.divmod(np.arange(rows * columns, dtype=np.int64), columns)
    return np.stack([np.zeros_like(row), row, column])


def _template_refusal() -> Refusal:
    return Refusal(
        "drawing-template",
        Text("The chat template does not fit a drawing.", "对话模板不适用于绘图。"),
        Text("It must keep one place for each reference picture.", "模板必须为每张参考图保留一个位置。"),
        Text("Use the chat template that came with the checkpoint.", "请使用权重自带的对话模板。"),
        status=503,
    )
