"""Questions to the operators of this chip, whose answers decide which adaptations are in force.

`run(facts, shapes)` asks what is not known yet, each question in a child process; `cached(facts, model)` only reads
what
is known. Neither imports torch into the caller.
"""

from typing import Any

from ascend_vl.adaptations.record import Facts, Finding
from ascend_vl.language import Text
from ascend_vl.probes.shapes import Shapes, of_config, of_model

__all__ = ["Shapes", "cached", "of_config", "of_model", "record_repeat", "run"]


def cached(facts: Facts, model: Any = None, shapes: Shapes | None = None) -> dict[str, Finding]:
    """What is known about this machine at the shapes of `model` (or at `shapes`), by probe id."""
    from ascend_vl.probes import cache
    from ascend_vl.probes.registry import PROBES, REPEAT

    if shapes is None:
        try:
            shapes = of_model(model)
        except AttributeError:
            return {}
    found = {name: cache.load(probe, facts, shapes) for name, probe in (PROBES | {REPEAT.id: REPEAT}).items()}
    return {name: finding for name, finding in found.items() if finding is not None}


def run(facts: Facts, shapes: Shapes, **options: Any) -> dict[str, Finding]:
    """Findings of all probes that decide something here; options as in `runner.run`."""
    from ascend_vl.probes import runner

    return runner.run(facts, shapes, **options)


def record_repeat(facts: Facts, shapes: Shapes, failed: bool, reason: Text, **numbers: Any) -> None:
    """Keep whether an identical second picture request failed on this machine; the plan then stops prefix caching."""
    from ascend_vl.probes import cache
    from ascend_vl.probes.registry import REPEAT

    cache.store(REPEAT, facts, shapes, Finding(failed, reason, numbers))
