"""Who may change what when: a seam asks here whether the adaptation that acts is within its declared phase."""

import contextlib
import contextvars
from collections.abc import Iterator

from ascend_vl.adaptations.record import Adaptation, Phase

_acting: contextvars.ContextVar[Adaptation | None] = contextvars.ContextVar("acting", default=None)
_phase: contextvars.ContextVar[Phase | None] = contextvars.ContextVar("phase", default=None)


class WrongPhase(RuntimeError):
    """An adaptation reached for a seam outside the phase its record names."""


@contextlib.contextmanager
def phase_of(record: Adaptation, phase: Phase) -> Iterator[None]:
    """Within this, seams accept changes of `record`; raises WrongPhase if its phase is another."""
    if record.phase != phase:
        raise WrongPhase(f"{record.id} belongs to phase {record.phase}, not {phase}")
    tokens = _acting.set(record), _phase.set(phase)
    try:
        yield
    finally:
        _acting.reset(tokens[0])
        _phase.reset(tokens[1])


def require_phase(*allowed: Phase) -> Adaptation:
    """The acting adaptation; raises WrongPhase when none acts, or when this seam is not of its phase."""
    record, phase = _acting.get(), _phase.get()
    if record is None or phase not in allowed or record.phase != phase:
        used = "outside any phase" if phase is None else f"in phase {phase}"
        raise WrongPhase(f"a seam of phase {'/'.join(allowed)} was used {used}")
    return record
