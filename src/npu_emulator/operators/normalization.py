"""RMS normalisation."""

import torch

from npu_emulator.contract import operator
from npu_emulator.operators.refusal import check_no_bf16, check_same_dtype, require_aclnn


def _rms(x: torch.Tensor, gamma: torch.Tensor, epsilon: float) -> tuple[torch.Tensor, torch.Tensor]:
    wide = x.to(torch.float32)
    reciprocal = torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)
    return (wide * reciprocal * gamma.to(torch.float32)).to(x.dtype), reciprocal


@operator(
    "npu_rms_norm",
    source="torch_npu 2.10.0.post4 documentation: float16/bfloat16/float32, gamma of the same dtype; "
    "returns y and rstd",
)
def npu_rms_norm(input: torch.Tensor, gamma: torch.Tensor, epsilon: float = 1e-6) -> tuple[torch.Tensor, torch.Tensor]:
    """x / sqrt(mean(x^2) + epsilon) * gamma over the last dimension; y in the dtype of x, rstd float32."""
    check_no_bf16("RmsNorm", input, gamma)
    check_same_dtype("RmsNorm", input, gamma)
    require_aclnn(
        "RmsNorm",
        input.shape[-1] == gamma.shape[-1],
        f"gamma has {gamma.shape[-1]} elements, the input {input.shape[-1]}",
    )
    return _rms(input, gamma, epsilon)


@operator(
    "npu_add_rms_norm",
    source="vllm-ascend 0.18.0 ops/layernorm.py: returns normalised sum, rstd and the sum in the input's dtype",
)
def npu_add_rms_norm(
    x1: torch.Tensor, x2: torch.Tensor, gamma: torch.Tensor, epsilon: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """RMS normalisation of x1 + x2; returns (y, rstd, x1 + x2)."""
    check_no_bf16("AddRmsNorm", x1, x2, gamma)
    check_same_dtype("AddRmsNorm", x1, x2, gamma)
    require_aclnn("AddRmsNorm", x1.shape == x2.shape, f"x1 {tuple(x1.shape)} and x2 {tuple(x2.shape)} differ")
    total = x1 + x2
    normalised, reciprocal = _rms(total, gamma, epsilon)
    return normalised, reciprocal, total
