"""Upper estimates of what runs between the weights and the KV cache: vision tower, language model, drawing."""

from ascend_vl.drawing import budget
from ascend_vl.plan.model import DTYPE_BYTES, Model
from ascend_vl.rules import table

GIB = 2**30


def rotary_bytes(model: Model, dtype: str) -> int:
    """The table of cosines and sines on every chip, bytes: rows for all positions x head width x element size."""
    rows = int(table().setting("memory-rotary-positions")) * model.text.max_positions
    return rows * model.text.head_dim * DTYPE_BYTES[dtype]


def tower_bytes(model: Model, visual_tokens: int, dtype: str, tensor_parallel: int, on_npu: bool) -> int:
    """Peak of the vision tower on one chip for pictures of `visual_tokens` together, bytes (`drawing.budget`)."""
    size = DTYPE_BYTES[dtype]
    return budget.tower_bytes(model.vision, model.text.hidden, visual_tokens, size, tensor_parallel, on_npu)


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
