"""A machine for the bodies to ask about, without a device: they take ordinary CPU tensors."""

from collections.abc import Callable

import pytest

from npu_emulator.machine import VARIABLE, Machine


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Machine]:
    """machine("310P3", "index-put", ...) makes the process one of that chip with those faults."""

    def emulate(chip: str = "310P3", *faults: str, cann: str = "9.1.0") -> Machine:
        emulated = Machine(chip=chip, cann=cann, faults=frozenset(faults))
        monkeypatch.setenv(VARIABLE, emulated.to_json())
        return emulated

    emulate()
    return emulate
