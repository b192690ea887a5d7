"""Making this process an emulated one: the device, its operators, the stand-in modules, the pretended build of
vllm-ascend.
"""

import importlib.abc
import importlib.machinery
import os
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

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


def _build_info() -> dict[str, Any]:
    """`vllm_ascend._build_info`, as a build for the emulated chip would have written it."""
    is_310p = current().is_310p
    values: dict[str, Any] = {"__device_type__": "_310P" if is_310p else "A2", "__sleep_mode_enabled__": False}
    # 0.11 asks for the SoC only; later versions would take a SoC for a device type of another kind.
    if current().stack.startswith("0.11"):
        values["__soc_version__"] = "ASCEND310P3" if is_310p else "ASCEND910B3"
    return values


def _compiled_part() -> dict[str, Any]:
    """`vllm_ascend.vllm_ascend_C`: wheels are built for 910B, so it exists there, from 0.18 on as far as it is
    emulated.
    """
    if current().is_310p or current().stack.startswith("0.11"):
        raise ImportError("No module named 'vllm_ascend.vllm_ascend_C'")
    from torch_npu.libraries import declare, define

    from npu_emulator import calls, compiled_part

    for operator in calls.of_this_version(compiled_part.OPERATORS):
        define(operator.namespace, operator)
    for schema in compiled_part.DECLARED:
        declare("_C_ascend", schema)
    return {}


class _PretendedModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers for modules of vllm-ascend that only a build writes."""

    makers: ClassVar[dict[str, Callable[[], dict[str, Any]]]] = {
        "vllm_ascend._build_info": _build_info,
        "vllm_ascend.vllm_ascend_C": _compiled_part,
    }

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(fullname, self) if fullname in self.makers else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        module.__dict__.update(self.makers[module.__name__]())


class _AfterImport(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Runs `action` when module `name` has been imported, whenever that is."""

    def __init__(self, name: str, action: Callable[[], None]) -> None:
        self.name, self.action = name, action
        self.loader: Any = None

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is not None:
            self.loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        module: types.ModuleType | None = self.loader.create_module(spec)
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        self.loader.exec_module(module)
        self.action()


def after_import(name: str, action: Callable[[], None]) -> None:
    """Run `action` once module `name` is imported; now, when it is already."""
    if name in sys.modules:
        action()
    else:
        sys.meta_path.insert(0, _AfterImport(name, action))


def stand_ins() -> None:
    """Let `torch_npu`, `acl` and `torchair` be imported, and vllm-ascend find the chip it was built for; safe to
    repeat.
    """
    if not any(isinstance(finder, _PretendedModules) for finder in sys.meta_path):
        sys.meta_path.insert(0, _PretendedModules())
    if str(SITE_PACKAGES) not in sys.path and "torch_npu" not in sys.modules:
        sys.path.insert(0, str(SITE_PACKAGES))


def activate() -> None:
    """The device, the modules and the operators, in this process; safe to repeat."""
    stand_ins()
    importlib.import_module("torch_npu")
