"""What a probe is."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ascend_vl.adaptations.record import Finding
from ascend_vl.language import Text
from ascend_vl.probes.shapes import Shapes


class Note(Protocol):
    """Called by a probe with what it knows so far, so that it is kept when the process does not survive the
    question.
    """

    def __call__(self, **numbers: object) -> None: ...


@dataclass(frozen=True)
class Probe:
    """A question to one operator on one chip.

    `run` is called in a child process of its own, after the device is prepared, and returns what it found; an error of
    the device that it lets through is a finding too (a fault). `module` is where its source is, part of the cache key.
    """

    id: str
    title: Text
    run: Callable[[Shapes, Note], Finding]
    module: str
