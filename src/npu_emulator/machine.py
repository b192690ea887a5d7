"""Which machine is emulated: read from one environment variable, so that child processes are the same machine."""

import functools
import json
import os
from dataclasses import asdict, dataclass, replace
from typing import Any

VARIABLE = "NPU_EMULATOR"
GIB = 2**30
CHIPS = ("310P3", "910B3")
MOST_CHIPS = 16
# Memory of one real chip in GiB, as npu-smi shows it: 44280 MB a chip of a 300I Duo, 64 GB of which 61 are visible.
REAL_GIB = {"310P3": 43.2, "910B3": 61.0}

# torch_npu as each vllm-ascend release was published with it, and its CANN (release notes and Dockerfiles of vllm-
# ascend).
TORCH_NPU = {"0.11.0": "2.7.1", "0.18.0": "2.9.0.post1", "0.23.0.post1": "2.10.0.post4", "0.26.0rc1": "2.10.0.post4"}
CANN = {"0.11.0": "8.3.RC2", "0.18.0": "8.5.1", "0.23.0.post1": "9.1.0", "0.26.0rc1": "9.1.0"}


@dataclass(frozen=True)
class Machine:
    """An emulated computer: `chips` chips of one kind, each with `memory_bytes` of memory.

    `stack` is the vllm-ascend version the process runs with, "" for none (then the newest torch_npu is emulated).
    """

    chip: str = "310P3"
    chips: int = 1
    memory_bytes: int = 4 * GIB
    cann: str = "9.1.0"
    stack: str = ""
    faults: frozenset[str] = frozenset()

    @property
    def torch_npu(self) -> str:
        """Version of the emulated torch_npu."""
        return TORCH_NPU.get(self.stack, "2.10.0.post4")

    @property
    def is_310p(self) -> bool:
        """Whether the chip is of the 310P family (fp16 only, ATB attention, NZ weights)."""
        return self.chip.startswith("310P")

    @property
    def scale(self) -> float:
        """How many times as much memory a real chip has."""
        return REAL_GIB[self.chip] * GIB / self.memory_bytes

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON has them."""
        return asdict(replace(self, faults=frozenset())) | {"faults": sorted(self.faults)}

    def to_json(self) -> str:
        """The text of the environment variable."""
        return json.dumps(self.to_dict())


def from_json(text: str) -> Machine:
    """The machine described by `text`; "" is the default machine. Raises ValueError for a
    chip, stack or field that does not exist.
    """
    fields = json.loads(text) if text.strip() else {}
    unknown = set(fields) - set(Machine.__dataclass_fields__)
    if unknown:
        raise ValueError(f"{VARIABLE}: unknown fields {sorted(unknown)}")
    machine = Machine(**{**fields, "faults": frozenset(fields.get("faults", ()))})
    if machine.chip not in CHIPS:
        raise ValueError(f"{VARIABLE}: chip {machine.chip!r} is not one of {', '.join(CHIPS)}")
    if machine.stack and machine.stack not in TORCH_NPU:
        raise ValueError(f"{VARIABLE}: stack {machine.stack!r} is not one of {', '.join(TORCH_NPU)}")
    if not 1 <= machine.chips <= MOST_CHIPS or machine.memory_bytes < 1:
        raise ValueError(f"{VARIABLE}: at least one chip and one byte of memory, at most {MOST_CHIPS} chips")
    return machine


@functools.lru_cache(maxsize=8)
def _parsed(text: str) -> Machine:
    return from_json(text)


def current() -> Machine:
    """The machine of this process, from the environment variable NPU_EMULATOR (the default machine when unset)."""
    return _parsed(os.environ.get(VARIABLE, ""))
