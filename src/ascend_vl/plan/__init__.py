"""Machine, checkpoint and wishes to one resolved Plan: command, environment, memory, warnings, and why."""

from ascend_vl.plan.parts import DoesNotFit, Plan, Value, Wishes
from ascend_vl.plan.resolve import resolve

__all__ = ["DoesNotFit", "Plan", "Value", "Wishes", "resolve"]
