"""Operator names of the graph compiler, without effect."""

from torchair.scope import npu_stream_switch as NpuStreamSwitch
from torchair.scope import npu_wait_tensor

__all__ = ["NpuStreamSwitch", "npu_wait_tensor"]
