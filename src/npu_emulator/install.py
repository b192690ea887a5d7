"""Making this process an emulated one: the device, its operators, the stand-in modules, the pretended build of vllm-ascend."""

import contextlib
import importlib.abc
import importlib.machinery
import os
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from npu_emulator import build
from npu_emulator.contract import NpuError
from npu_emulator.machine import Machine, current

SITE_PACKAGES = Path(__file__).resolve().parent / "site_packages"
# A file through which the processes of one emulated computer see each other's memory; set by the launcher.
SHARED = "NPU_EMULATOR_SHARED"


def visible_chips(machine: Machine) -> list[int]:
    """The chips this process sees, in order: ASCEND_RT_VISIBLE_DEVICES, or all."""
    text = os.environ.get("ASCEND_RT_VISIBLE_DEVICES", "")
    named = [int(part) for part in text.split(",") if part.strip().isdigit()]
    return [chip for chip in named if chip < machine.chips] if text.strip() else list(range(machine.chips))


def device() -> types.ModuleType:
    """Load the device into PyTorch as `npu` and return the extension; safe to repeat.

    Raises NpuError (code 0) without a C++ compiler when it was never built.
    """
    import torch

    extension = build.load()
    if torch._C._get_privateuse1_backend_name() == "npu":
        return extension
    machine = current()

    class NpuOutOfMemoryError(NpuError, torch.OutOfMemoryError):  # type: ignore[misc]
        """The NPU has no memory left; also what PyTorch's own handlers look for."""

    extension.set_errors(NpuError, NpuOutOfMemoryError)
    extension.configure(visible_chips(machine), machine.memory_bytes, os.environ.get(SHARED, ""))
    extension.set_upload_race("h2d-race" in machine.faults)
    torch.utils.rename_privateuse1_backend("npu")
    return extension


class _BuildInfo(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers for `vllm_ascend._build_info`, which a build for the emulated chip would have written."""

    name = "vllm_ascend._build_info"

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(fullname, self) if fullname == self.name else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        is_310p = current().is_310p
        values: dict[str, Any] = {
            "__device_type__": "_310P" if is_310p else "A2",
            "__sleep_mode_enabled__": False,
        }
        # Before 0.13 only the SoC is asked for; later versions take a SoC of another kind for a device type.
        if current().stack.startswith("0.11"):
            values["__soc_version__"] = "ASCEND310P3" if is_310p else "ASCEND910B3"
        module.__dict__.update(values)


def stand_ins() -> None:
    """Let `torch_npu`, `acl` and `torchair` be imported, and vllm-ascend find the chip it was built for; safe to repeat."""
    if not any(isinstance(finder, _BuildInfo) for finder in sys.meta_path):
        sys.meta_path.insert(0, _BuildInfo())
    if str(SITE_PACKAGES) not in sys.path and "torch_npu" not in sys.modules:
        sys.path.insert(0, str(SITE_PACKAGES))


def activate() -> None:
    """The device, the modules and the operators, in this process; safe to repeat."""
    stand_ins()
    importlib.import_module("torch_npu")


@contextlib.contextmanager
def described_as(machine: Machine) -> Any:
    """The environment of `machine` for the length of a block; what is loaded already keeps its chips and memory."""
    from npu_emulator.machine import VARIABLE

    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = machine.to_json()
    try:
        yield machine
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before
