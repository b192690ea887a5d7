"""Refusing, in the words and with the codes of the NPU's own libraries."""

import torch

from npu_emulator import faults
from npu_emulator.contract import NpuError
from npu_emulator.machine import current

# aclnn return codes: an argument of the call is invalid; the shape cannot be tiled.
PARAM_INVALID = 161002
TILING_FAILED = 561002
# AI-CPU and AI-core exceptions of the runtime.
AICPU_EXCEPTION = 507018
AICORE_EXCEPTION = 507015
# torch_npu's own code for a failed call below it.
CALL_FAILED = 100

DTYPE_NAMES = {
    torch.float16: "DT_FLOAT16",
    torch.bfloat16: "DT_BFLOAT16",
    torch.float32: "DT_FLOAT",
    torch.int8: "DT_INT8",
    torch.int32: "DT_INT32",
    torch.int64: "DT_INT64",
    torch.bool: "DT_BOOL",
}


def dtype_name(dtype: torch.dtype) -> str:
    """The name CANN prints for `dtype`."""
    return DTYPE_NAMES.get(dtype, str(dtype))


def refuse_aclnn(kernel: str, reason: str, code: int = PARAM_INVALID) -> None:
    """Raise as a call into aclnn does: the kernel's name, the code, then the detail."""
    short = "EZ9999" if code == TILING_FAILED else "EZ1001"
    raise NpuError(
        f"call aclnn{kernel} failed, error code is {code}\nERR00100 PTA call acl api failed.\n{short}: {reason}", code
    )


def refuse_atb(operation: str, reason: str) -> None:
    """Raise as an ATB operation does whose set-up is refused (vllm-ascend issue 6842 shows the text)."""
    raise NpuError(f"{operation} setup failed!\nERR00100 PTA call acl api failed.\n{reason}", CALL_FAILED)


def device_exception(code: int, kernel: str, kind: str) -> NpuError:
    """The error of a kernel that dies on the device; `kind` is "aicpu" or "aicore" (texts of issues 12086 and 2976)."""
    return NpuError(
        "NPU function error: c10_npu::acl::AclrtSynchronizeStreamWithTimeout(copy_stream), "
        f"error code is {code}\nERR00100 PTA call acl api failed\n"
        f"[Error]: The {kind} execution is abnormal.\n"
        f"{kind.capitalize()} kernel execute failed, device_id=0, fault kernel_name={kernel}, kernelName={kernel}",
        code,
    )


def check_no_bf16(kernel: str, *tensors: torch.Tensor | None) -> None:
    """Refuse bfloat16 where the chip has none (property `no-bf16`)."""
    if faults.active("no-bf16") and any(t is not None and t.dtype == torch.bfloat16 for t in tensors):
        refuse_aclnn(
            kernel, "self not implemented for DT_BFLOAT16, should be in dtype support list [DT_FLOAT16,DT_FLOAT,...]"
        )


def check_same_dtype(kernel: str, *tensors: torch.Tensor) -> None:
    """Refuse operands of different dtypes."""
    kinds = {t.dtype for t in tensors}
    if len(kinds) > 1:
        refuse_aclnn(kernel, f"the dtypes differ: {', '.join(sorted(map(dtype_name, kinds)))}")


def check_head_width(operation: str, width: int) -> None:
    """Refuse a head width that is no multiple of 16 (property `head-multiple-of-16`)."""
    if faults.active("head-multiple-of-16") and width % 16:
        refuse_atb(operation, f"head size {width} is not a multiple of 16")


def require_atb(operation: str, holds: bool, reason: str) -> None:
    """Refuse an ATB operation unless `holds`."""
    if not holds:
        refuse_atb(operation, reason)


def require_aclnn(kernel: str, holds: bool, reason: str, code: int = PARAM_INVALID) -> None:
    """Refuse an aclnn kernel unless `holds`."""
    if not holds:
        refuse_aclnn(kernel, reason, code)


def is_310p() -> bool:
    """Whether the emulated chip is of the 310P family."""
    return current().is_310p
