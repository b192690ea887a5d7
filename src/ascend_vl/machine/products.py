"""From npu-smi's chip names to the products of the rule table."""

from ascend_vl.rules import rows, table

GIB = 2**30


def chip_row(name: str) -> rows.Chip | None:
    """The chip that npu-smi calls `name`, with or without the word Ascend before it."""
    bare = name.strip().removeprefix("Ascend").strip("_ ") or name.strip()
    for chip in table().chips:
        if name.strip() in chip.npu_smi or bare in chip.npu_smi:
            return chip
    return None


def product_row(name: str, chips_on_card: int, memory_bytes: int) -> rows.Product | None:
    """The product with such chips: of those with about that memory the one with as many on a card.

    A container may be given one chip of a card, so memory decides before the count does.
    """
    chip = chip_row(name)
    if chip is None:
        return None
    candidates = [row for row in table().products if row.chip == chip.id]
    sized = [row for row in candidates if abs(row.memory_gib * GIB - memory_bytes) < 0.3 * memory_bytes]
    counted = [row for row in sized or candidates if row.chips_per_card == chips_on_card]
    return next(iter(counted or sized or candidates), None)


def named_product(text: str) -> rows.Product | None:
    """The product somebody means by `text`: an id, an alias, or npu-smi's name of a chip (310P3 means a 300I Duo)."""
    wanted = text.strip().lower().replace("_", "-")
    for row in table().products:
        if wanted == row.id or wanted in row.aliases:
            return row
    chip = chip_row(text.strip().upper()) or chip_row(text.strip())
    if chip is None:
        chip = next((row for row in table().chips if wanted.replace("-", "_") in row.soc_versions), None)
    return next((row for row in table().products if chip is not None and row.chip == chip.id), None)
