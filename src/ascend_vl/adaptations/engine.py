"""Applying adaptations in a process, and keeping account of it."""

import logging
from typing import Any

from ascend_vl.adaptations import override, registry
from ascend_vl.adaptations.decide import decide
from ascend_vl.adaptations.phase import WrongPhase, phase_of
from ascend_vl.adaptations.record import IN_FORCE, PHASES, Adaptation, Facts, Finding, Outcome, Phase
from ascend_vl.language import Text

logger = logging.getLogger("ascend_vl")

_outcomes: dict[str, Outcome] = {}


def apply(
    phase: Phase, target: Any, *, facts: Facts | None = None, findings: dict[str, Finding] | None = None
) -> list[Outcome]:
    """Decide every adaptation of `phase` and put those in force into `target`.

    In "construct" and "loaded" the target is our model (torch.nn.Module), in "process" None, in "config" the engine
    arguments of the plan (a mutable mapping). `facts` and `findings` (by probe id) default to those of this process and
    the probe cache. An adaptation whose apply fails is reported as failed and leaves the others standing.
    Raises ValueError for an unknown phase.
    """
    if phase not in PHASES:
        raise ValueError(f"unknown phase {phase!r}")
    if override.switched_off():
        return []
    if facts is None:
        from ascend_vl.adaptations.process_facts import process_facts

        facts = process_facts()
    if findings is None:
        findings = _cached_findings(facts, target if phase in ("construct", "loaded") else None)
    chosen = override.current(registry.ids())
    outcomes = [
        _settle(record, phase, target, facts, chosen, findings.get(record.probe or ""))
        for record in registry.RECORDS
        if record.phase == phase
    ]
    _outcomes.update({outcome.id: outcome for outcome in outcomes})
    if phase == "construct":
        _account_for_config(facts, chosen, findings)
    return outcomes


def _account_for_config(facts: Facts, chosen: override.Override, findings: dict[str, Finding]) -> None:
    """How those of phase "config" stand by what this worker knows; the plan applied them in another process."""
    for record in registry.RECORDS:
        if record.phase == "config" and record.id not in _outcomes:
            finding = findings.get(record.probe or "")
            state, reason = decide(record, facts, chosen, finding)
            _outcomes[record.id] = Outcome(record.id, "config", state, reason, dict(finding.numbers) if finding else {})


def _settle(
    record: Adaptation, phase: Phase, target: Any, facts: Facts, chosen: override.Override, finding: Finding | None
) -> Outcome:
    state, reason = decide(record, facts, chosen, finding)
    numbers = dict(finding.numbers) if finding else {}
    if state not in IN_FORCE:
        return Outcome(record.id, phase, state, reason, numbers)
    try:
        with phase_of(record, phase):
            replaced = tuple(record.apply(target, finding))
    except WrongPhase:
        raise
    except Exception as error:
        logger.exception("ascend-vl: adaptation %s could not be applied", record.id)
        why = Text(f"it could not be applied: {error}", f"未能应用：{error}")
        return Outcome(record.id, phase, "failed", why, numbers)
    logger.info(
        "ascend-vl: %s %s (%s): %s",
        record.id,
        state,
        reason.en,
        ", ".join(r.name for r in replaced) or "nothing to replace",
    )
    return Outcome(record.id, phase, state, reason, numbers, replaced)


def _cached_findings(facts: Facts, model: Any) -> dict[str, Finding]:
    if facts.chip is None or not any(record.probe for record in registry.RECORDS):
        return {}
    from ascend_vl import probes

    return probes.cached(facts, model)


def report() -> list[dict[str, Any]]:
    """Every adaptation as it stands in this process, in the order of the registry, for `/v1/ascend_vl/status`.

    One whose phase has not come yet in this process has state "pending".
    """
    lines = []
    for record in registry.RECORDS:
        outcome = _outcomes.get(record.id)
        line = (
            outcome.to_json()
            if outcome
            else {"id": record.id, "phase": record.phase, "state": "pending", "replaced": []}
        )
        lines.append(line | {"title": {"en": record.title.en, "zh": record.title.zh}})
    return lines


def expected(facts: Facts, findings: dict[str, Finding] | None = None) -> list[Outcome]:
    """How every adaptation would stand on the machine `facts` describes; applies nothing, imports no torch."""
    chosen = override.current(registry.ids())
    found = findings or {}
    outcomes = []
    for record in registry.RECORDS:
        finding = found.get(record.probe or "")
        state, reason = decide(record, facts, chosen, finding)
        outcomes.append(Outcome(record.id, record.phase, state, reason, dict(finding.numbers) if finding else {}))
    return outcomes


def forget() -> None:
    """Drop the account of this process (for tests)."""
    _outcomes.clear()
