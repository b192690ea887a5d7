"""A field report as the doctor reads it: the machine it was made on, its answers, and the guesses they retire."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ascend_vl.adaptations import Finding
from ascend_vl.language import Text
from ascend_vl.machine import Machine, describe
from ascend_vl.rules import table

GIB = 2**30


@dataclass(frozen=True)
class Settled:
    """One question of the rule table with its answer. An `emulated` answer retires no guess about hardware."""

    id: str
    title: Text
    guess: Text
    answer: Text
    emulated: bool

    def to_json(self) -> dict[str, Any]:
        """As in `doctor --field --json`."""
        texts = {"question": str(self.title), "guess": str(self.guess), "answer": str(self.answer)}
        return {"id": self.id, **texts, "retired": not self.emulated}


@dataclass(frozen=True)
class FieldReport:
    """`answers` holds every finding by its label (probe@tower); `findings` by probe id those at heads of 72."""

    machine: Machine
    answers: dict[str, Finding]
    findings: dict[str, Finding]

    @property
    def settled(self) -> tuple[Settled, ...]:
        """The questions of the rule table that have a verdict here; a fault at any tower counts as one."""
        found = []
        for row in table().questions:
            verdicts = [one.fault for label, one in self.answers.items() if label.partition("@")[0] == row.probe]
            if any(verdict is not None for verdict in verdicts):
                answer = row.fault if any(verdicts) else row.fine
                found.append(Settled(row.id, row.title, row.text, answer, self.machine.emulated))
        return tuple(found)


def read(path: Path) -> FieldReport:
    """The report in a file. Raises AscendVLError `field-unreadable` or `unknown-chip`."""
    from ascend_vl.probes import cache, field

    value = field.load(path)
    facts, findings = field.findings(value)
    answers = {label: cache.from_json(answer) for label, answer in value["answers"].items()}
    size = value.get("chip_memory_bytes") or 0
    made_on = describe(
        chip=facts.chip,
        chips=len(value.get("chips") or ()) or 1,
        memory=size / GIB if size else None,
        cann=facts.cann,
        driver=facts.driver,
        vllm_ascend=facts.vllm_ascend,
    )
    found = {"vllm-ascend": facts.vllm_ascend, "vllm": facts.vllm, "torch-npu": facts.torch_npu}
    packages = made_on.packages | {name: version for name, version in found.items() if version}
    if facts.vllm_ascend is None:
        packages = {name: version for name, version in found.items() if version}
    machine = replace(made_on, cann=facts.cann, packages=packages, emulated=bool(value.get("emulated")))
    return FieldReport(machine, answers, findings)
