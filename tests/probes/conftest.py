"""torch_npu made of the emulator's operator bodies, and a CPU where probes expect the device. All emulated."""

import sys
import types
from collections.abc import Callable, Iterator

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import npu_emulator.operators  # noqa: F401
from ascend_vl.probes import device, vision
from npu_emulator.contract import OPERATORS
from npu_emulator.machine import VARIABLE, Machine
from npu_emulator.operators.indexing import index_put_


class IndexPut(TorchDispatchMode):
    """Sends aten's index_put_ through the emulator's body, as the emulated device does."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.index_put_.default:
            with torch._C._DisableTorchDispatch():
                return index_put_(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Machine]:
    """machine("310P3", "0.18.0", "unpad-borders", ...): a chip, a vllm-ascend version and faults for probes to meet."""

    def emulate(chip: str = "310P3", version: str = "0.23.0", *faults: str) -> Machine:
        emulated = Machine(chip=chip, faults=frozenset(faults))
        monkeypatch.setenv(VARIABLE, emulated.to_json())
        module = types.ModuleType("torch_npu")
        for name, operator in OPERATORS.items():
            if operator.namespace == "torch_npu" and (operator.since is None or version >= "0.23"):
                setattr(module, name, operator.body)
        monkeypatch.setitem(sys.modules, "torch_npu", module)
        monkeypatch.setattr(device, "prepared", lambda: torch.device("cpu"))
        monkeypatch.setattr(device, "chip_name", lambda: chip)
        monkeypatch.setattr(device, "finish", lambda: None)
        monkeypatch.setattr(vision, "installed", lambda: version)
        return emulated

    emulate()
    return emulate


@pytest.fixture
def index_put_of_the_device() -> Iterator[None]:
    """Within a test, boolean assignment meets the emulator's index_put_."""
    with IndexPut():
        yield
