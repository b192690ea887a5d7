"""Matrix products that are not aten's."""

import torch

from npu_emulator.contract import operator
from npu_emulator.operators.refusal import require_atb


@operator(
    "_npu_matmul_add_fp32",
    source="torch_npu schema; vllm-ascend 0.18.0 worker.py warms ATB up with it and skips that on 310P "
    "(worker_310p.py)",
)
def npu_matmul_add_fp32(x: torch.Tensor, weight: torch.Tensor, C: torch.Tensor) -> None:
    """C += x^T weight; x (K, M), weight (K, N) 16-bit, C (M, N) float32."""
    require_atb(
        "LinearOperation",
        x.shape[0] == weight.shape[0] and C.dtype == torch.float32,
        "x (K, M), weight (K, N), C float32",
    )
    C.add_(x.to(torch.float32).T @ weight.to(torch.float32))
