"""Chips that other services use too: which are idle, and what others hold."""

from dataclasses import replace

from ascend_vl.language import Text
from ascend_vl.machine import Chip, Machine
from ascend_vl.plan.parts import Plan
from ascend_vl.rules import table

GIB = 2**30
VISIBLE = "ASCEND_RT_VISIBLE_DEVICES"


def is_busy(chip: Chip) -> bool:
    """Whether somebody else holds memory of it; what a chip takes at rest is not counted."""
    return bool(chip.holders) or chip.used_bytes > table().setting("chip-memory-taken") * GIB


def held_bytes(machine: Machine) -> int:
    """What other processes hold on the busiest chip."""
    return max((chip.used_bytes for chip in machine.chips if is_busy(chip)), default=0)


def idle_part(machine: Machine, wanted: int | None) -> Machine | None:
    """The machine with its idle chips only; None when all are idle, or fewer than `wanted` (at least one) are."""
    idle = tuple(chip for chip in machine.chips if not is_busy(chip))
    if len(idle) == len(machine.chips) or len(idle) < (wanted or 1):
        return None
    return replace(machine, chips=idle)


def on_idle_chips(plan: Plan, whole: Machine) -> Plan:
    """A plan of the idle part, told to use these chips; says which are left to others."""
    mine = ",".join(str(chip.device) for chip in plan.machine.chips)
    left = ", ".join(str(chip.device) for chip in whole.chips if chip not in plan.machine.chips)
    holders = [f"{one.name} ({one.pid})" for chip in whole.chips for one in chip.holders]
    who = f" ({', '.join(holders)})" if holders else ""
    warning = Text(
        f"Chips {left} are used by others{who}; this plan uses chips {mine}.",
        f"芯片 {left} 被其他进程占用{who}；本方案使用芯片 {mine}。",
    )
    return replace(plan, environment=plan.environment | {VISIBLE: mine}, warnings=[*plan.warnings, warning])
