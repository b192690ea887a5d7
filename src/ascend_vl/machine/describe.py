"""A machine that is not this one, from command-line options."""

import os
import platform

from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text
from ascend_vl.machine.facts import GIB, Chip, Machine
from ascend_vl.machine.products import chip_row, named_product
from ascend_vl.rules import rows, table, version_row
from ascend_vl.rules.verdict import best_release


def describe(
    chip: str | None = None,
    chips: int | None = None,
    memory: float | None = None,
    cann: str | None = None,
    driver: str | None = None,
    vllm_ascend: str | None = None,
    held: float | None = None,
) -> Machine:
    """The machine those options describe. `memory` is GiB of one chip (of the host for `cpu`), `held` what other
    services hold of it.

    `chip` is `cpu`, a product (300i-duo), or a chip's name (310P3, 910B3). Without it 300i-duo is meant.
    The packages and the CANN of a known vllm-ascend release are filled in from the rule table; without `vllm_ascend`
    the newest release the table calls good for the chip is taken.
    Raises AscendVLError `unknown-chip` or `machine-option-out-of-range`.
    """
    if memory is not None and not 0 < memory <= 65536:
        raise _out_of_range("--memory", memory)
    if held is not None and not 0 <= held <= 65536:
        raise _out_of_range("--held", held)
    if chips is not None and not 1 <= chips <= 1024:
        raise _out_of_range("--chips", chips)
    if (chip or "").lower() == "cpu":
        size = int((memory or 16) * GIB)
        return Machine(
            architecture=platform.machine(),
            memory_bytes=size,
            memory_available_bytes=max(0, size - int((held or 0) * GIB)),
            cpus=os.cpu_count() or 1,
            described=True,
        )
    product = named_product("300i-duo" if chip is None else chip)
    if product is None:
        raise unknown_chip(chip or "")
    row = next(row for row in table().chips if row.id == product.chip)
    size = int((memory or product.memory_gib) * GIB)
    name = chip.upper() if chip and chip_row(chip.upper()) else row.npu_smi[0]
    if held is not None and held * GIB > size:
        raise _out_of_range("--held", held)
    count = chips or product.chips_per_card
    best = best_release(row.kind)
    release = vllm_ascend or (best.release if best else None)
    return Machine(
        chips=tuple(
            Chip(
                device=number,
                card=number // product.chips_per_card,
                chip=number % product.chips_per_card,
                name=name,
                kind=row.kind,
                product=product.id,
                memory_bytes=size,
                used_bytes=int((held or 0) * GIB),
            )
            for number in range(count)
        ),
        driver=driver,
        cann=cann or release_cann(release, row.kind),
        packages=release_packages(release),
        container="docker",
        architecture="aarch64",
        python=release_python(release),
        device_type=row.kind,
        described=True,
    )


def release_packages(release: str | None) -> dict[str, str]:
    """The packages of that release's container, as far as the table pins them."""
    if release is None:
        return {}
    row = version_row(release)
    found = {"vllm-ascend": release}
    if row is not None:
        found |= {"vllm": row.vllm, "torch": row.torch, "torch-npu": row.torch_npu}
        if row.image_transformers:
            found["transformers"] = row.image_transformers
    return found


def release_cann(release: str | None, kind: str) -> str | None:
    """The CANN of that release's container for chips of that kind."""
    row = version_row(release)
    return None if row is None else row.cann_310p if kind == "310P" else row.cann


def release_python(release: str | None) -> str:
    """The newest Python that release allows ("" when unknown)."""
    row: rows.Version | None = version_row(release)
    return row.python[1] if row is not None else ""


def unknown_chip(chip: str) -> AscendVLError:
    """The error for a chip or card that the table does not know, naming those it does."""
    known = ", ".join(
        ["cpu", *(row.id for row in table().products), *table().chips[0].npu_smi, *table().chips[1].npu_smi]
    )
    return AscendVLError(
        "unknown-chip",
        Text(f"The chip or card {chip!r} is not known.", f"未知的芯片或板卡 {chip!r}。"),
        Text("It is not in the rule table.", "规则表中没有它。"),
        Text(f"Name one of: {known}.", f"可用：{known}。"),
    )


def _out_of_range(option: str, value: object) -> AscendVLError:
    return AscendVLError(
        "machine-option-out-of-range",
        Text(f"{option} {value} cannot be.", f"{option} {value} 不合理。"),
        Text("The number is out of range.", "数值超出范围。"),
        Text("Chips: 1 to 1024; memory: GiB of one chip.", "芯片数 1 到 1024；内存为每颗芯片的 GiB。"),
    )
