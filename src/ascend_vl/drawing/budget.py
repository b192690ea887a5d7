"""How much device memory drawing needs, from shapes alone (no torch: the plan asks too)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ascend_vl.checkpoint.shapes import VisionShape
from ascend_vl.drawing import settings
from ascend_vl.drawing.recipes import Constants, DrawingConfig

MIB = 1024 * 1024
# Small checkpoints may still draw large pictures.
FLOOR = 64 * MIB
FRAGMENTATION = 1.15
# Prompt and condition tokens of a branch that the reserve allows for.
PREFIX_TOKENS = 1024
# vllm-ascend pads vision heads between 64 and 128 to 128 (its AscendMMEncoderAttention).
PADDED_HEAD = 128
# References of the largest usual request take this many times the target's patches (2 or 8 of them: 2 * (48/64)^2).
REFERENCE_SHARE = 1.125
# Held between slices: z, the corrected latent, two clean pictures, the preview; and one prediction a branch.
HELD_LATENTS = 5
# While guidance and scheduler end a step, besides the predictions. Counted by tests/plan/test_against_emulator.py.
STEP_LATENTS = 10


@dataclass(frozen=True)
class Shape:
    """Sizes of the text model and of a patch; `dtype_bytes` of the model's dtype, `tp` ranks."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    patch_values: int
    dtype_bytes: int
    tp: int = 1

    @classmethod
    def of(cls, config: Mapping[str, Any], dtype_bytes: int, tp: int = 1, patch_size: int = 32) -> "Shape":
        """From config.json."""
        text = config["text_config"]
        heads = int(text["num_attention_heads"])
        return cls(
            int(text["hidden_size"]),
            int(text["intermediate_size"]),
            int(text["num_hidden_layers"]),
            heads,
            int(text["num_key_value_heads"]),
            int(text.get("head_dim") or int(text["hidden_size"]) // heads),
            3 * patch_size**2,
            dtype_bytes,
            tp,
        )

    @property
    def kv_values(self) -> int:
        """Values of one token's key (or value) on one rank."""
        return max(1, self.kv_heads // self.tp) * self.head_dim


def slice_bytes(shape: Shape, rows: int, keys: int) -> int:
    """Peak of one layer over `rows` tokens (all branches that run together) that see `keys` tokens each."""
    attention = (shape.heads // shape.tp) * shape.head_dim
    per_row = (
        4 * shape.hidden  # residual, normed, output, all-reduce
        + attention * 3  # q before and after rotary, output
        + 4 * shape.kv_values
        + 3 * shape.intermediate // shape.tp  # gate, up and their product
    )
    return rows * per_row * shape.dtype_bytes + 2 * keys * shape.kv_values * shape.dtype_bytes


def tower_bytes(
    vision: VisionShape, text_hidden: int, visual_tokens: int, dtype_bytes: int, tp: int, on_npu: bool
) -> int:
    """Peak of the vision tower on one of `tp` ranks for pictures of `visual_tokens` together, an upper estimate.

    Residual and its norm; then the larger of attention (qkv; q, k, v apart; q and k rotated; q, k, v and the result as
    the operator takes them, padded on an NPU) and MLP (two copies of its width); with rotary tables, pixels and the
    outputs of merger and deepstack mergers alive. Compared with the emulator's counter in tests/plan (emulated).
    """
    patches = visual_tokens * vision.merge**2
    ways = tp if vision.heads % tp == 0 else 1
    width = PADDED_HEAD if on_npu and 64 < vision.head_dim < PADDED_HEAD else vision.head_dim
    attention = (3 + 3 + 2) * vision.hidden // ways + 4 * (vision.heads // ways) * width
    mlp = 2 * vision.intermediate // ways
    pixels = vision.channels * vision.temporal_patch * vision.patch**2
    rotary = 8 * vision.head_dim
    outputs = (1 + len(vision.deepstack)) * visual_tokens * text_hidden
    return dtype_bytes * (patches * (2 * vision.hidden + max(attention, mlp) + rotary + pixels) + outputs)


def latent_bytes(shape: Shape, patches: int) -> int:
    """So many patches in float32."""
    return patches * shape.patch_values * 4


def session_bytes(shape: Shape, target: int, references: int, prefixes: list[int]) -> int:
    """What a drawing holds between slices: latents, predictions, references, hidden rows, prefix keys and values."""
    branches = len(prefixes)
    latents = (HELD_LATENTS + branches) * latent_bytes(shape, target)
    patches = latent_bytes(shape, references)
    hidden = 2 * branches * (1 + target + references) * shape.hidden * shape.dtype_bytes
    embedded = references * shape.hidden * 4
    return (
        latents + patches + hidden + embedded + sum(prefixes) * 2 * shape.layers * shape.kv_values * shape.dtype_bytes
    )


def request_bytes(shape: Shape, target: int, references: int, prefixes: list[int]) -> int:
    """Session and the larger of one slice and the end of a step, with allowance for fragmentation."""
    rows = 1 + target + references
    together = len(prefixes) if runs_together(rows, len(prefixes)) else 1
    peak = max(
        slice_bytes(shape, rows * together, (rows + max(prefixes)) * together),
        slice_bytes(shape, max(prefixes), max(prefixes)),
        (STEP_LATENTS - HELD_LATENTS) * latent_bytes(shape, target),
    )
    return int((session_bytes(shape, target, references, prefixes) + peak) * FRAGMENTATION)


def active_drawings() -> int:
    """How many drawings may be under way at once (ASCEND_VL_DRAWING_ACTIVE, default 2)."""
    return int(settings.number("ACTIVE"))


def workspace_bytes(config: Mapping[str, Any], dtype_bytes: int, tp: int = 1) -> int:
    """What is reserved while the model of that config.json loads, on each of `tp` ranks."""
    constants = DrawingConfig.from_checkpoint(config).constants
    return reserve_bytes(Shape.of(config, dtype_bytes, tp, constants.patch_size), constants)


def reserve_bytes(shape: Shape, constants: Constants) -> int:
    """ASCEND_VL_DRAWING_WORKSPACE_MIB, or the active drawings' need at the default size with references.

    They hold their latents and prefixes together, and one of them at a time runs a slice. Raises AscendVLError
    `setting-invalid` for any variable of drawing that cannot be used.
    """
    settings.check()
    wanted = int(settings.number("WORKSPACE_MIB"))
    if wanted:
        return wanted * MIB
    width, height = constants.default_size
    target = (width // constants.patch_size) * (height // constants.patch_size)
    references = int(target * REFERENCE_SHARE)
    prefixes = [PREFIX_TOKENS] * 2
    first = request_bytes(shape, target, references, prefixes)
    more = int(session_bytes(shape, target, references, prefixes) * FRAGMENTATION)
    return max(FLOOR, first + (active_drawings() - 1) * more)


def runs_together(rows: int, branches: int, limit: int = 512) -> bool:
    """Whether guidance branches share a pass: below some 500 rows the linear layers gain from it, above not."""
    return branches > 1 and rows * branches <= limit
