"""From an error text or a log to ranked causes."""

import re
from dataclasses import dataclass

from ascend_vl.language import Text
from ascend_vl.rules.conditions import Subject, matches
from ascend_vl.rules.rows import Cause, Symptom
from ascend_vl.rules.table import table

# A log's end matters most, its beginning next: both are read, the middle of a very long one is not.
LONGEST = 4_000_000


@dataclass(frozen=True)
class Recognised:
    """A symptom and where it stands first: line (from 1) and the text of that line."""

    symptom: Symptom
    line: int
    text: str


@dataclass(frozen=True)
class Suspect:
    """A cause with its score (0 to 1) and why it has it."""

    cause: Cause
    score: float
    because: Text
    recognised: Recognised


def recognise(text: str) -> list[Recognised]:
    """The symptoms in a text, in the order in which they appear. Empty means not recognised, never healthy."""
    if len(text) > LONGEST:
        text = text[: LONGEST // 2] + "\n" + text[-LONGEST // 2 :]
    found = []
    lines = text.splitlines()
    for symptom in table().symptoms:
        pattern = re.compile("|".join(f"(?:{pattern})" for pattern in symptom.patterns), re.IGNORECASE)
        for number, line in enumerate(lines, 1):
            if pattern.search(line[:4000]):
                found.append(Recognised(symptom, number, line.strip()[:200]))
                break
    return sorted(found, key=lambda one: one.line)


def suspects(recognised: list[Recognised], subject: Subject) -> list[Suspect]:
    """Causes of what was recognised, most likely first; one for each cause id.

    A cause that speaks of this machine keeps its weight, one that speaks of another keeps a quarter, and one whose
    machine is not known keeps three quarters. What appears later in a log counts a little less: first errors cause
    others.
    """
    found: dict[str, Suspect] = {}
    for position, one in enumerate(recognised):
        for cause in one.symptom.causes:
            factor, because = _fit(cause, subject)
            score = round(cause.weight * factor * (0.95 ** min(position, 10)), 3)
            if cause.id not in found or found[cause.id].score < score:
                found[cause.id] = Suspect(cause, score, because, one)
    return sorted(found.values(), key=lambda one: (-one.score, one.cause.id))


def _fit(cause: Cause, subject: Subject) -> tuple[float, Text]:
    when = cause.when
    if not (when.kinds or when.products or when.since or when.before):
        return 1.0, Text("independent of the machine", "与机器无关")
    if matches(when, subject):
        return 1.0, Text("it speaks of this chip and release", "与本机芯片及版本相符")
    unknown = (
        (when.kinds and subject.kind is None)
        or (when.products and subject.product is None)
        or ((when.since or when.before) and subject.version is None)
    )
    if unknown:
        return 0.75, Text("chip or release is not known here", "芯片或版本未知")
    return 0.25, Text("it speaks of another chip or release", "针对其他芯片或版本")
