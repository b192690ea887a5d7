"""8-bit weights and activations (ModelSlim W8A8)."""

import torch

from npu_emulator.contract import operator
from npu_emulator.operators.refusal import check_no_bf16, require_aclnn


@operator(
    "npu_dynamic_quant",
    schema="(Tensor input, *, Tensor? smooth_scales=None, Tensor? group_index=None, ScalarType? dst_type=None) "
    "-> (Tensor, Tensor)",
    source="torch_npu 2.9.0 schema; vllm-ascend 0.18.0 _310p/quantization/methods/w8a8_dynamic.py",
)
def npu_dynamic_quant(input: torch.Tensor, **unused: object) -> tuple[torch.Tensor, torch.Tensor]:
    """Symmetric int8 per row: returns (int8, scale float32) with input = int8 * scale."""
    check_no_bf16("DynamicQuant", input)
    wide = input.to(torch.float32)
    scale = wide.abs().amax(-1) / 127
    steps = torch.where(scale > 0, scale, torch.ones_like(scale))
    return torch.round(wide / steps[..., None]).clamp(-128, 127).to(torch.int8), scale


@operator("npu_quantize", source="torch_npu schema; vllm-ascend 0.18.0 _310p/quantization/methods/w8a8_static.py")
def npu_quantize(
    input: torch.Tensor,
    scales: torch.Tensor,
    zero_points: torch.Tensor | None,
    dtype: object,
    axis: int = 1,
    div_mode: bool = True,
) -> torch.Tensor:
    """round(x / scale + zero point) as int8; with div_mode False x * scale."""
    check_no_bf16("AscendQuant", input)
    wide = input.to(torch.float32)
    scaled = wide / scales.to(torch.float32) if div_mode else wide * scales.to(torch.float32)
    if zero_points is not None:
        scaled = scaled + zero_points.to(torch.float32)
    return torch.round(scaled).clamp(-128, 127).to(torch.int8)


def _scale(scale: torch.Tensor) -> torch.Tensor:
    """The scale as float32; an int64 one carries float32 bits in its low half."""
    return (
        scale.to(torch.int32).view(torch.float32)
        if scale.dtype in (torch.int64, torch.uint64)
        else scale.to(torch.float32)
    )


@operator(
    "npu_quant_matmul",
    source="torch_npu schema; vllm-ascend 0.18.0 _310p/quantization/methods: int8 x int8 in int32, bias "
    "int32 before the scale",
)
def npu_quant_matmul(
    x1: torch.Tensor,
    x2: torch.Tensor,
    scale: torch.Tensor,
    *,
    offset: torch.Tensor | None = None,
    pertoken_scale: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    output_dtype: object = None,
    **unused: object,
) -> torch.Tensor:
    """(x1 @ x2 + int32 bias) * scale * per-token scale; x1 (T, K) int8, x2 (K, N) int8."""
    kernel = "QuantMatmulV4"
    require_aclnn(kernel, x1.dtype == torch.int8 and x2.dtype == torch.int8, "x1 and x2 must be DT_INT8")
    require_aclnn(kernel, offset is None, "offset is not emulated")
    total = (x1.to(torch.float64) @ x2.to(torch.float64)).to(torch.float32)
    if bias is not None and bias.dtype == torch.int32:
        total = total + bias.to(torch.float32)
    total = total * _scale(scale)
    if pertoken_scale is not None:
        total = total * pertoken_scale.to(torch.float32)[..., None]
    if bias is not None and bias.dtype != torch.int32:
        total = total + bias.to(torch.float32)
    return total.to(output_dtype if isinstance(output_dtype, torch.dtype) else torch.float16)
