"""Bodies of the operators, one module a kind. Importing this package registers them in
`npu_emulator.contract.OPERATORS`.
"""

from npu_emulator.operators import (
    activation,
    formats,
    fused_infer_attention,
    fused_norm_quant,
    indexing,
    kv_cache,
    matmul,
    moe,
    normalization,
    quantization,
    rotary,
    text_attention,
    vision_attention,
)

__all__ = [
    "activation",
    "formats",
    "fused_infer_attention",
    "fused_norm_quant",
    "indexing",
    "kv_cache",
    "matmul",
    "moe",
    "normalization",
    "quantization",
    "rotary",
    "text_attention",
    "vision_attention",
]
