"""Names of acl.rt."""

from typing import Any

from npu_emulator.contract import NpuError


def memcpy(*args: Any) -> int:
    """Raises NpuError: raw copies are not emulated."""
    raise NpuError("npu_emulator: acl.rt.memcpy is not emulated", 0)
