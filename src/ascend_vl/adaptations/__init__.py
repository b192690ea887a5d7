"""One small file for each fault of a framework or operator, a registry that lists them, and who may apply them when.

`expected(facts)` says how each would stand on a machine and needs no torch. `apply(phase, target)` puts those in force
into our own model class; `report()` is the account of this process. The user's word is `ASCEND_VL_ADAPT=+id,-id`.
"""

from ascend_vl.adaptations.engine import apply, expected, report
from ascend_vl.adaptations.record import Adaptation, Facts, Finding, MachineFacts, Outcome
from ascend_vl.adaptations.registry import RECORDS

__all__ = ["RECORDS", "Adaptation", "Facts", "Finding", "MachineFacts", "Outcome", "apply", "expected", "report"]
