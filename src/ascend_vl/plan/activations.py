"""Upper estimates of what runs between the weights and the KV cache: vision tower, language model, drawing."""

from ascend_vl.drawing import budget
from ascend_vl.plan.model import DTYPE_BYTES, Model
from ascend_vl.rules import table

GIB = 2**30
# vllm-ascend pads vision heads between 64 and 128 to 128 (its AscendMMEncoderAttention).
PADDED_HEAD = 128


def rotary_bytes(model: Model, dtype: str) -> int:
    """The table of cosines and sines on every chip, bytes: rows for all positions x head width x element size."""
    rows = int(table().setting("memory-rotary-positions")) * model.text.max_positions
    return rows * model.text.head_dim * DTYPE_BYTES[dtype]


def tower_bytes(model: Model, visual_tokens: int, dtype: str, tensor_parallel: int, on_npu: bool) -> int:
    """Peak of the vision tower on one chip for pictures of `visual_tokens` together, bytes, an upper estimate.

    Residual and its norm; then the larger of attention (qkv; q, k, v apart; q and k rotated; q, k, v and the result as
    the operator takes them, padded on an NPU) and MLP (two copies of its width); with rotary tables, pixels and the
    outputs of merger and deepstack mergers alive. Compared with the emulator's counter in tests/plan (emulated).
    """
    vision, size = model.vision, DTYPE_BYTES[dtype]
    patches = visual_tokens * vision.merge**2
    ways = tensor_parallel if vision.heads % tensor_parallel == 0 else 1
    width = PADDED_HEAD if on_npu and 64 < vision.head_dim < PADDED_HEAD else vision.head_dim
    attention = (3 + 3 + 2) * vision.hidden // ways + 4 * (vision.heads // ways) * width
    mlp = 2 * vision.intermediate // ways
    pixels = vision.channels * vision.temporal_patch * vision.patch**2
    rotary = 8 * vision.head_dim
    outputs = (1 + len(vision.deepstack)) * visual_tokens * model.text.hidden
    return size * (patches * (2 * vision.hidden + max(attention, mlp) + rotary + pixels) + outputs)


def language_bytes(model: Model, tokens: int, sequences: int, dtype: str, tensor_parallel: int) -> int:
    """Peak of one language layer over `tokens` batched tokens plus float32 logits of `sequences`, bytes."""
    text, size = model.text, DTYPE_BYTES[dtype]
    wide = text.experts_per_token * text.moe_intermediate if text.experts else text.intermediate
    qkv = (text.heads + 2 * text.kv_heads) * text.head_dim
    per_token = 3 * text.hidden + max(qkv + text.heads * text.head_dim, 3 * wide) // tensor_parallel
    return tokens * per_token * size + 2 * 4 * sequences * text.vocab


def drawing_bytes(model: Model, dtype: str, tensor_parallel: int) -> int:
    """The workspace that our model class reserves on each chip while it loads, bytes; vLLM counts it as weights."""
    text = model.text
    sizes = (text.hidden, text.intermediate, text.layers, text.heads, text.kv_heads, text.head_dim)
    values = 3 * model.drawing.patch_size**2
    return budget.reserve_bytes(budget.Shape(*sizes, values, DTYPE_BYTES[dtype], tensor_parallel), model.drawing)
