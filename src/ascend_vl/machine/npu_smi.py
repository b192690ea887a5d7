"""Reading what npu-smi prints. Parsers take text of any shape and never raise: what they cannot read is missing."""

import re
from dataclasses import dataclass

from ascend_vl.machine.facts import Holder

MB = 2**20


@dataclass(frozen=True)
class SmiChip:
    """One chip of `npu-smi info`: card (NPU id), chip id in the card, and the device number when it is printed."""

    card: int
    chip: int
    device: int | None
    name: str
    health: str
    bus_id: str
    used_bytes: int
    memory_bytes: int
    holders: tuple[Holder, ...] = ()


@dataclass(frozen=True)
class Smi:
    """All of `npu-smi info`. `complete` is false when the table breaks off."""

    version: str | None
    chips: tuple[SmiChip, ...]
    complete: bool


_VERSION = re.compile(r"npu-smi\s+v?(\S+)\s.*Version:\s*(\S+)|npu-smi\s+v?(\d[\w.]*)", re.IGNORECASE)
_PAIR = re.compile(r"(\d{1,12})\s*/\s*(\d{1,12})")
# Longer digit strings are damage, not numbers.
_DIGITS = re.compile(r"[0-9]{1,12}")
_BUS = re.compile(r"^[0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]$|^NA$")


def _is_number(text: str) -> bool:
    return _DIGITS.fullmatch(text) is not None


def parse_info(text: str) -> Smi:
    """`npu-smi info`: a table of two lines a chip, then a table of processes.

    The first line of a chip holds the NPU id, its name, health, power; the second the chip id, (on some versions) the
    device number, the bus id, and pairs "used / total" in MB of which the last with a total above zero is the
    memory that programs get (HBM where there is HBM).
    """
    version = None
    first: tuple[int, str, str] | None = None
    chips: list[SmiChip] = []
    holders: dict[tuple[int, int], list[Holder]] = {}
    closed = False
    in_processes = False
    for line in text.splitlines():
        if version is None and (match := _VERSION.search(line)):
            version = match.group(2) or match.group(3) or match.group(1)
            continue
        if line.startswith("+"):
            closed = bool(chips)
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|") or len(cells) < 3:
            continue
        closed = False
        if "Process id" in line:
            in_processes = True
        elif in_processes:
            _process(cells, holders)
        elif (start := _first_line(cells)) is not None:
            first = start
        elif first is not None and (chip := _second_line(cells, first)) is not None:
            chips.append(chip)
    found = tuple(
        SmiChip(**{**vars(chip), "holders": tuple(holders.get((chip.card, chip.chip), ()))}) for chip in chips
    )
    return Smi(version, found, closed)


def _first_line(cells: list[str]) -> tuple[int, str, str] | None:
    words = cells[0].split()
    if len(words) >= 2 and _is_number(words[0]) and not _is_number(words[1]) and not _BUS.match(cells[1]):
        return int(words[0]), words[1], cells[1] or "Unknown"
    return None


def _second_line(cells: list[str], first: tuple[int, str, str]) -> SmiChip | None:
    words = cells[0].split()
    if not words or not _is_number(words[0]) or not _BUS.match(cells[1]):
        return None
    pairs = [(int(used), int(total)) for used, total in _PAIR.findall(cells[2])]
    used, total = next(((used, total) for used, total in reversed(pairs) if total > 0), (0, 0))
    device = int(words[1]) if len(words) > 1 and _is_number(words[1]) else None
    card, name, health = first
    return SmiChip(card, int(words[0]), device, name, health, cells[1], used * MB, total * MB)


def _process(cells: list[str], holders: dict[tuple[int, int], list[Holder]]) -> None:
    numbers = cells[0].split()
    if len(numbers) != 2 or not all(map(_is_number, numbers)) or len(cells) < 4 or not _is_number(cells[1]):
        return
    size = int(cells[3]) if _is_number(cells[3]) else 0
    key = (int(numbers[0]), int(numbers[1]))
    holders.setdefault(key, []).append(Holder(int(cells[1]), cells[2], size * MB))


def parse_mapping(text: str) -> dict[tuple[int, int], int]:
    """`npu-smi info -m`: (NPU id, chip id) to the logical device number; chips without one (the MCU) are left out."""
    found: dict[tuple[int, int], int] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 4 and all(map(_is_number, words[:3])):
            found[int(words[0]), int(words[1])] = int(words[2])
    return found


def parse_fields(text: str) -> list[dict[str, str]]:
    """`npu-smi info -l`, `-t board`, `-t usages`: blocks of "name : value", ended by an empty line or a repeat."""
    blocks: list[dict[str, str]] = [{}]
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        name = name.strip()
        if not line.strip():
            if blocks[-1]:
                blocks.append({})
        elif colon and name:
            if name in blocks[-1]:
                blocks.append({})
            blocks[-1][name] = value.strip()
    return [block for block in blocks if block]


def card_count(listing: str) -> int | None:
    """Number of cards in `npu-smi info -l` ("Total Count"), None when it is not there."""
    for block in parse_fields(listing):
        for name, value in block.items():
            if name.lower() in ("total count", "card count") and _is_number(value):
                return int(value)
    return None


def board_versions(board: str) -> tuple[str | None, str | None]:
    """(driver, firmware) of `npu-smi info -t board -i N`."""
    merged: dict[str, str] = {}
    for block in parse_fields(board):
        merged = block | merged
    return merged.get("Software Version"), merged.get("Firmware Version")


def memory_usages(usages: str) -> dict[int, tuple[int, int]]:
    """(used, total) bytes by chip id in `npu-smi info -t usages -i N`; HBM where there is HBM."""
    found: dict[int, tuple[int, int]] = {}
    for block in parse_fields(usages):
        for kind in ("HBM", "DDR"):
            size, rate = block.get(f"{kind} Capacity(MB)", ""), block.get(f"{kind} Usage Rate(%)", "")
            chip = block.get("Chip ID", "")
            if all(map(_is_number, (size, rate, chip))) and int(size) > 0:
                found[int(chip)] = (int(size) * MB * min(int(rate), 100) // 100, int(size) * MB)
                break
    return found
