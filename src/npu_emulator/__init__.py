"""A CPU stand-in for an Ascend NPU: a real PrivateUse1 device over host memory, `torch_npu` and its operators.

Importing this package changes nothing; `npu_emulator.activate()` (or `python -m npu_emulator ... -- COMMAND`) does.
Whatever runs here is emulated and says nothing about hardware.
"""

from npu_emulator.contract import NpuError
from npu_emulator.machine import Machine, current

__all__ = ["Machine", "NpuError", "activate", "current"]


def activate() -> None:
    """Make this process an emulated one: device `npu`, modules `torch_npu`, `acl`, `torchair`; safe to repeat.

    The machine is the one of the environment variable NPU_EMULATOR, or the default one (one 310P3).
    Raises NpuError without a C++ compiler when the device was never built on this computer.
    """
    from npu_emulator import install

    install.activate()
