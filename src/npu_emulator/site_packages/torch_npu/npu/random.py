"""Random numbers on the chips: drawn from a CPU generator each."""

from typing import Any

import torch

from npu_emulator import install


def _generator(device: Any = None) -> torch.Generator:
    from torch_npu.npu import _index

    return install.device().default_generator(_index(device))


def _all() -> list[torch.Generator]:
    return [_generator(index) for index in range(install.device().chips())]


def manual_seed(seed: int) -> None:
    """Seed the current chip."""
    _generator().manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed every chip."""
    for generator in _all():
        generator.manual_seed(int(seed))


def seed() -> None:
    """Seed the current chip from the computer's entropy."""
    _generator().seed()


def seed_all() -> None:
    """Seed every chip from the computer's entropy."""
    for generator in _all():
        generator.seed()


def initial_seed() -> int:
    """The current chip's seed."""
    return _generator().initial_seed()


def get_rng_state(device: Any = "npu") -> torch.Tensor:
    """State of a chip's generator (uint8, on the CPU)."""
    return _generator(device).get_state()


def set_rng_state(state: torch.Tensor, device: Any = "npu") -> None:
    """Restore a state of `get_rng_state`."""
    _generator(device).set_state(state)


def get_rng_state_all() -> list[torch.Tensor]:
    """States of all chips."""
    return [generator.get_state() for generator in _all()]


def set_rng_state_all(states: list[torch.Tensor]) -> None:
    """Restore the states of `get_rng_state_all`."""
    for generator, state in zip(_all(), states, strict=True):
        generator.set_state(state)
