"""The device a probe runs on, prepared as the framework's worker prepares it."""

import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

# Memory of the chip that may be in use before a probe says that somebody else works there.
FOREIGN_BYTES = 2**30


class Occupied(RuntimeError):
    """Somebody else holds memory of the chip."""


def prepare(index: int = 0, anyway: bool = False) -> "torch.device":
    """The device `index`, set up like vllm-ascend's worker. Raises Occupied, or ImportError without torch_npu."""
    import torch
    import torch_npu  # noqa: F401

    npu: Any = vars(torch)["npu"]
    npu.set_device(index)
    with contextlib.suppress(AttributeError):
        npu.set_compile_mode(jit_compile=False)
    free, total = npu.mem_get_info()
    if total - free > FOREIGN_BYTES and not anyway:
        raise Occupied(f"{(total - free) / 2**30:.1f} GiB of chip {index} are in use")
    return torch.device(f"npu:{index}")


def prepared() -> "torch.device":
    """The device that `prepare` made current."""
    import torch

    npu: Any = vars(torch)["npu"]
    return torch.device(f"npu:{npu.current_device()}")


def chip_name() -> str:
    """As npu-smi prints it, for example 310P3."""
    import torch

    npu: Any = vars(torch)["npu"]
    return str(npu.get_device_name(npu.current_device())).removeprefix("Ascend")


def finish() -> None:
    """Wait for everything launched, so that an error surfaces here and not at an innocent later operator."""
    import torch

    npu: Any = vars(torch)["npu"]
    npu.synchronize()


def fetched(value: "torch.Tensor") -> "torch.Tensor":
    """On the CPU, after everything launched is done."""
    finish()
    return value.cpu()
