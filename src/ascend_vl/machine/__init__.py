"""What is here: chips, driver, CANN, package versions, memory. Nothing is imported to find out."""

from ascend_vl.machine.describe import describe
from ascend_vl.machine.detect import detect
from ascend_vl.machine.facts import Chip, Holder, Machine

__all__ = ["Chip", "Holder", "Machine", "describe", "detect"]
