"""The options that describe a machine that is not this one, alike in every command that has them."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ascend_vl.machine import Machine

Chip = Annotated[
    str | None, typer.Option("--chip", help="cpu | 300i-duo | 300i-pro | 800i-a2 | a3 | 310P3 | 910B3 ...")
]
Chips = Annotated[int | None, typer.Option("--chips", help="number of chips (a 300I Duo card has two)")]
Memory = Annotated[float | None, typer.Option("--memory", help="GiB of one chip (of the host for cpu)")]
Held = Annotated[float | None, typer.Option("--held", help="GiB of each chip that other services hold")]
Cann = Annotated[str | None, typer.Option("--cann", help="CANN version")]
Driver = Annotated[str | None, typer.Option("--driver", help="driver version")]
VllmAscend = Annotated[str | None, typer.Option("--vllm-ascend", help="vllm-ascend version")]


def machine(
    chip: str | None,
    chips: int | None,
    memory: float | None,
    cann: str | None,
    driver: str | None,
    vllm_ascend: str | None,
    held: float | None = None,
    *,
    hashes: bool = False,
) -> "Machine":
    """The described machine when any option is given, else this one (`hashes`: also look for edited files)."""
    from ascend_vl import machine as machines

    given = (chip, chips, memory, cann, driver, vllm_ascend, held)
    if any(option is not None for option in given):
        return machines.describe(*given)
    return machines.detect(hashes=hashes)
