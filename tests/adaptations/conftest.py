"""torch_npu made of the emulator's operator bodies on CPU tensors: no device, no frameworks, quick. All emulated."""

import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import npu_emulator.operators  # noqa: F401
from ascend_vl.adaptations import engine
from npu_emulator.contract import OPERATORS
from npu_emulator.machine import VARIABLE, Machine

sys.path.insert(0, str(Path(__file__).parent))


class Calls(list):
    """(operator, its keyword arguments) in order."""

    def names(self) -> list[str]:
        return [name for name, _ in self]


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, calls: Calls) -> Callable[..., Machine]:
    """machine("310P3", "unpad-borders", ...): a chip with those faults, whose operators `torch_npu` then offers."""

    def recorded(name: str, body: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls.append((name, kwargs))
            return body(*args, **kwargs)

        return call

    def emulate(chip: str = "310P3", *faults: str, without: tuple[str, ...] = ()) -> Machine:
        emulated = Machine(chip=chip, faults=frozenset(faults))
        monkeypatch.setenv(VARIABLE, emulated.to_json())
        module = types.ModuleType("torch_npu")
        for name, operator in OPERATORS.items():
            if operator.namespace == "torch_npu" and name not in without:
                setattr(module, name, recorded(name, operator.body))
        monkeypatch.setitem(sys.modules, "torch_npu", module)
        return emulated

    emulate()
    return emulate


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("ASCEND_VL", "ASCEND_VL_ADAPT"):
        monkeypatch.delenv(name, raising=False)
    engine.forget()
    yield
    engine.forget()
