"""RMS norm and quantisation in one operator, which vllm-ascend's graph passes put in place of the two."""

from collections.abc import Sequence

import torch

from npu_emulator.contract import operator
from npu_emulator.operators.normalization import npu_add_rms_norm
from npu_emulator.operators.quantization import npu_dynamic_quant, npu_quantize
from npu_emulator.operators.refusal import require_aclnn


@operator(
    "npu_add_rms_norm_quant",
    schema="(Tensor x1, Tensor x2, Tensor gamma, Tensor scales1, Tensor? zero_points1, Tensor? beta=None, "
    "Tensor? scales2=None, Tensor? zero_points2=None, *, int axis=-1, float epsilon=1e-06, bool div_mode=True) "
    "-> (Tensor, Tensor, Tensor)",
    source="torch_npu 2.9.0 schema; vllm-ascend 0.18.0 compilation/passes/norm_quant_fusion_pass.py",
)
def npu_add_rms_norm_quant(
    x1: torch.Tensor,
    x2: torch.Tensor,
    gamma: torch.Tensor,
    scales1: torch.Tensor,
    zero_points1: torch.Tensor | None,
    beta: torch.Tensor | None = None,
    scales2: torch.Tensor | None = None,
    zero_points2: torch.Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-6,
    div_mode: bool = True,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The norm of x1 + x2 as int8 by scales1, the same again (scales2 is not emulated), and x1 + x2."""
    require_aclnn("AddRmsNormQuant", scales2 is None and zero_points2 is None, "second scales are not emulated")
    normed, _, total = npu_add_rms_norm(x1, x2, gamma, epsilon)
    if beta is not None:
        normed = normed + beta
    quantized = npu_quantize(normed, scales1, zero_points1, torch.qint8, axis, div_mode)
    return quantized, quantized.clone(), total


@operator(
    "npu_add_rms_norm_dynamic_quant",
    schema="(Tensor x1, Tensor x2, Tensor gamma, *, Tensor? smooth_scale1=None, Tensor? smooth_scale2=None, "
    "Tensor? beta=None, float epsilon=1e-6, bool[2] output_mask=[]) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    source="torch_npu 2.9.0 schema; vllm-ascend 0.18.0 compilation/passes/norm_quant_fusion_pass.py",
)
def npu_add_rms_norm_dynamic_quant(
    x1: torch.Tensor,
    x2: torch.Tensor,
    gamma: torch.Tensor,
    *,
    smooth_scale1: torch.Tensor | None = None,
    smooth_scale2: torch.Tensor | None = None,
    beta: torch.Tensor | None = None,
    epsilon: float = 1e-6,
    output_mask: Sequence[bool] = (),
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The norm of x1 + x2 as int8 with a scale a row, twice: (int8, int8, x1 + x2, scale, scale)."""
    smooth = smooth_scale1 is None and smooth_scale2 is None
    require_aclnn("AddRmsNormDynamicQuant", smooth, "smooth scales are not emulated")
    normed, _, total = npu_add_rms_norm(x1, x2, gamma, epsilon)
    if beta is not None:
        normed = normed + beta
    quantized, scale = npu_dynamic_quant(normed)
    return quantized, quantized.clone(), total, scale, scale.clone()
