"""This machine."""

import dataclasses
import json
import os
import platform
import shutil
import subprocess
from pathlib import Path

from ascend_vl.machine import files, npu_smi, packages
from ascend_vl.machine.facts import GIB, Chip, Machine
from ascend_vl.machine.products import chip_row, product_row

# The variable by which npu_emulator carries its machine into child processes.
EMULATOR = "NPU_EMULATOR"
# The runtime's list of the chips that a process may use.
VISIBLE = "ASCEND_RT_VISIBLE_DEVICES"
SECONDS = 20


def detect(root: Path | None = None, hashes: bool = False) -> Machine:
    """The facts of this machine. `root` stands in for the file system; `hashes` also checks framework files.

    Chips come from npu-smi. Where it is missing or unreadable there are none, and `problems` says why when device
    files show that there should be some. Never raises for what it finds.
    """
    base = root or Path("/")
    architecture = platform.machine()
    total, available = files.host_memory(base)
    found = packages.distributions()
    nodes = files.device_nodes(base)
    chips, board_driver, firmware, problems = _chips(nodes)
    chips, unseen = visible(chips, os.environ.get(VISIBLE))
    problems += unseen
    emulated = os.environ.get(EMULATOR)
    if emulated is not None and not chips:
        chips = emulated_chips(emulated)
        problems = []
    return Machine(
        chips=tuple(chips),
        driver=files.driver_version(base) or board_driver,
        firmware=files.firmware_version(base) or firmware,
        cann=_emulated_field(emulated, "cann") or files.cann_version(base, architecture),
        packages=packages.versions(found),
        container=files.container(base),
        architecture=architecture,
        memory_bytes=total,
        memory_available_bytes=available,
        cpus=_cpus(),
        python=platform.python_version(),
        device_type=packages.device_type(found),
        nodes=nodes,
        shm_bytes=files.shm_bytes(base),
        edited_files=packages.edited_files(found) if hashes else (),
        duplicates=packages.duplicates(found),
        problems=tuple(problems),
        emulated=emulated is not None,
    )


def _cpus() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def smi(*arguments: str) -> str | None:
    """What `npu-smi ARGUMENTS` prints; None when the program is missing, fails to start or does not end."""
    program = shutil.which("npu-smi")
    if program is None:
        return None
    try:
        done = subprocess.run([program, *arguments], capture_output=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "replace") + done.stderr.decode("utf-8", "replace")


def _chips(nodes: tuple[str, ...]) -> tuple[list[Chip], str | None, str | None, list[str]]:
    """Chips, driver and firmware by npu-smi, and codes of what went wrong."""
    text = smi("info")
    numbered = [name for name in nodes if name.removeprefix("davinci").isdigit()]
    if text is None:
        return [], None, None, ["npu-smi-missing"] if numbered else []
    chips, problems = chips_from_smi(text, smi("info", "-m") or "")
    if not chips:
        return [], None, None, problems
    chips = [chip if chip.memory_bytes else _measured(chip) for chip in chips]
    if (npu_smi.card_count(smi("info", "-l") or "") or 0) > len({chip.card for chip in chips}):
        problems.append("cards-not-shown")
    driver, firmware = npu_smi.board_versions(smi("info", "-t", "board", "-i", str(chips[0].card)) or "")
    if len(numbered) > 0 and len(numbered) < len(chips):
        problems.append("device-files-missing")
    return chips, driver, firmware, problems


def _measured(chip: Chip) -> Chip:
    """The chip with its memory from `npu-smi info -t usages`, for tables that do not print it."""
    seen = npu_smi.memory_usages(smi("info", "-t", "usages", "-i", str(chip.card)) or "")
    used, total = seen.get(chip.chip, (0, 0))
    return dataclasses.replace(chip, used_bytes=used, memory_bytes=total)


def visible(chips: list[Chip], wanted: str | None) -> tuple[list[Chip], list[str]]:
    """The chips that `wanted` (device numbers with commas) names, in its order; all, and a code, when it names none."""
    if not chips or not (wanted or "").strip():
        return chips, []
    by_device = {str(chip.device): chip for chip in chips}
    named = [by_device[word.strip()] for word in str(wanted).split(",") if word.strip() in by_device]
    return (named, []) if named else (chips, ["no-visible-chip"])


def chips_from_smi(info: str, mapping: str = "") -> tuple[list[Chip], list[str]]:
    """Chips from the texts of `npu-smi info` and `npu-smi info -m`, and codes of what is wrong with them."""
    parsed = npu_smi.parse_info(info)
    problems = []
    if not parsed.chips:
        failed = "dcmi" in info.lower() or "-80" in info
        problems.append("npu-smi-failed" if failed else "npu-smi-unreadable")
    elif not parsed.complete:
        problems.append("npu-smi-truncated")
    logical = npu_smi.parse_mapping(mapping)
    per_card: dict[int, int] = {}
    for seen in parsed.chips:
        per_card[seen.card] = per_card.get(seen.card, 0) + 1
    chips = []
    for position, seen in enumerate(parsed.chips):
        row = chip_row(seen.name)
        product = product_row(seen.name, per_card[seen.card], seen.memory_bytes)
        device = logical.get((seen.card, seen.chip), seen.device if seen.device is not None else position)
        chips.append(
            Chip(
                device=device,
                card=seen.card,
                chip=seen.chip,
                name=seen.name,
                kind=row.kind if row else "none",
                product=product.id if product else None,
                memory_bytes=seen.memory_bytes,
                used_bytes=seen.used_bytes,
                health=seen.health,
                bus_id=seen.bus_id,
                holders=seen.holders,
            )
        )
    return chips, problems


def _emulated(text: str) -> dict[str, object]:
    try:
        fields = json.loads(text) if text.strip() else {}
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


def _emulated_field(text: str | None, name: str) -> str | None:
    value = _emulated(text).get(name) if text is not None else None
    return value if isinstance(value, str) else None


def emulated_chips(text: str) -> list[Chip]:
    """The chips of npu_emulator's machine, from the text of its variable (its defaults: one 310P3 of 4 GiB)."""
    fields = _emulated(text)
    name = str(fields.get("chip", "310P3"))
    row = chip_row(name)
    count, size = fields.get("chips", 1), fields.get("memory_bytes", 4 * GIB)
    count = count if isinstance(count, int) and 0 < count <= 64 else 1
    size = size if isinstance(size, int) and size > 0 else 4 * GIB
    product = product_row(name, 2, size)
    return [
        Chip(number, number // 2, number % 2, name, row.kind if row else "none", product.id if product else None, size)
        for number in range(count)
    ]
