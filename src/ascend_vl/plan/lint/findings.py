"""What the linter hands back."""

from dataclasses import dataclass
from typing import Any

from ascend_vl.language import Text
from ascend_vl.rules import table
from ascend_vl.rules.rows import Condition, Severity

ORDER: dict[Severity, int] = {"error": 0, "warning": 1, "note": 2}


@dataclass(frozen=True)
class Finding:
    """One finding: `rule` is the id of its row, `what` the part of the text it is about."""

    rule: str
    severity: Severity
    line: int
    what: str
    title: Text
    text: Text
    fix: Text
    evidence: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The form of --json."""
        return {
            "rule": self.rule,
            "severity": self.severity,
            "line": self.line,
            "what": self.what,
            "title": str(self.title),
            "text": str(self.text),
            "fix": str(self.fix),
            "evidence": list(self.evidence),
        }


@dataclass(frozen=True)
class Report:
    """All findings in order of lines, what was understood, and the repaired text ("" for nothing to repair).

    `remaining` are the findings that still hold of the repaired text.
    """

    findings: tuple[Finding, ...]
    kind: str | None
    version: str | None
    repaired: str
    remaining: tuple[Finding, ...] = ()

    @property
    def worst(self) -> Severity | None:
        """The gravest severity found."""
        return min((finding.severity for finding in self.findings), key=ORDER.__getitem__, default=None)

    @property
    def exit_code(self) -> int:
        """1 when there is an error, else 0."""
        return 1 if self.worst == "error" else 0


def of(condition: Condition, line: int, what: str, text: Text | None = None, fix: Text | None = None) -> Finding:
    """The finding of a row."""
    return Finding(
        condition.id,
        condition.severity,
        line,
        what,
        condition.title,
        text or condition.text,
        fix or condition.fix,
        condition.evidence,
    )


def named(rule: str, line: int, what: str, text: Text | None = None, fix: Text | None = None) -> Finding:
    """The finding of a row of `commands`, by id. Raises KeyError for an id that is not there."""
    condition = next((row for row in table().commands if row.id == rule), None)
    if condition is None:
        raise KeyError(rule)
    return of(condition, line, what, text, fix)
