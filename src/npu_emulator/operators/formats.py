"""Memory formats. Only a tag is emulated: the logical shape and the values stay, so misreading NZ data cannot be
seen here.
"""

from typing import Any

import torch

from npu_emulator.contract import operator
from npu_emulator.operators.refusal import check_no_bf16, require_aclnn

ND = 2
FRACTAL_NZ = 29
KNOWN = (-1, 0, 1, ND, 3, FRACTAL_NZ)


@operator("get_npu_format", source="torch_npu 2.10.0.post4 documentation of npu_format_cast")
def get_npu_format(self: torch.Tensor) -> int:
    """The format tag of a tensor."""
    return int(getattr(self, "npu_format", ND))


@operator(
    "npu_format_cast", source="torch_npu 2.10.0.post4 documentation; vllm-ascend casts weights and masks to 29 (NZ)"
)
def npu_format_cast(
    input: torch.Tensor, acl_format: int, customize_dtype: int | None = None, input_dtype: int | None = None
) -> torch.Tensor:
    """The same values with another format tag, in memory of its own."""
    require_aclnn("NpuFormatCast", acl_format in KNOWN, f"format {acl_format}")
    if acl_format == FRACTAL_NZ:
        check_no_bf16("NpuFormatCast", input)
        require_aclnn("NpuFormatCast", input.dtype != torch.float64, "DT_DOUBLE has no NZ format")
    result = input.clone()
    result.npu_format = acl_format  # type: ignore[attr-defined]
    return result


@operator("npu_format_cast_", source="torch_npu 2.10.0.post4 schema: in place")
def npu_format_cast_inplace(input: torch.Tensor, acl_format: int) -> torch.Tensor:
    """Change the tag of `input`."""
    if acl_format == FRACTAL_NZ:
        check_no_bf16("NpuFormatCast", input)
    input.npu_format = acl_format  # type: ignore[attr-defined]
    return input


@operator(
    "empty_with_format", source="torch_npu 2.10.0.post4 schema; vllm-ascend 0.18.0 allocates the 310P KV cache with it"
)
def empty_with_format(
    size: Any,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
    acl_format: int = ND,
    base_addr_aligned_kb: int | None = None,
) -> torch.Tensor:
    """Memory of `size` with a format tag; filled with zeros so that runs repeat."""
    require_aclnn("EmptyWithFormat", acl_format in KNOWN, f"format {acl_format}")
    result = torch.zeros(tuple(size), dtype=dtype or torch.get_default_dtype())
    check_no_bf16("EmptyWithFormat", result)
    result.npu_format = acl_format  # type: ignore[attr-defined]
    return result
