"""Activations."""

import torch
from torch.nn import functional

from npu_emulator.contract import operator
from npu_emulator.operators.refusal import check_no_bf16, is_310p, require_aclnn


@operator(
    "npu_swiglu",
    source="torch_npu 2.10.0.post4 documentation; last dimension a multiple of 32 on 310P: vllm-ascend "
    "0.18.0 _310p/ops/activation.py",
)
def npu_swiglu(input: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """silu(first half) * second half along `dim`."""
    check_no_bf16("SwiGlu", input)
    size = input.shape[dim]
    require_aclnn("SwiGlu", size % 2 == 0, f"dimension {dim} has odd size {size}")
    require_aclnn(
        "SwiGlu", not is_310p() or input.shape[-1] % 32 == 0, f"last dimension {input.shape[-1]} is no multiple of 32"
    )
    first, second = input.to(torch.float32).chunk(2, dim)
    return (functional.silu(first) * second).to(input.dtype)


@operator("npu_fast_gelu", source="torch_npu 2.10.0.post4 schema; vllm-ascend ops/activation.py uses it for QuickGELU")
def npu_fast_gelu(input: torch.Tensor) -> torch.Tensor:
    """x * sigmoid(1.702 x)."""
    check_no_bf16("FastGelu", input)
    wide = input.to(torch.float32)
    return (wide * torch.sigmoid(1.702 * wide)).to(input.dtype)
