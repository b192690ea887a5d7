"""What an adaptation is, what it is judged by, and how it can stand; free of torch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ascend_vl.language import Text

Phase = Literal["config", "process", "construct", "loaded"]
PHASES: tuple[Phase, ...] = ("config", "process", "construct", "loaded")

State = Literal[
    "not-applicable", "handled-upstream", "probed-fine", "active", "unprobed", "forced", "suppressed", "failed"
]

# States in which the adaptation is in force.
IN_FORCE: frozenset[State] = frozenset({"active", "unprobed", "forced"})


class Facts(Protocol):
    """What decides whether an adaptation is to be considered; None is "not known".

    `chip` is the name npu-smi prints ("310P3", "910B3"), None without an NPU. Versions are as the packages print them.
    """

    @property
    def chip(self) -> str | None: ...
    @property
    def cann(self) -> str | None: ...
    @property
    def driver(self) -> str | None: ...
    @property
    def torch_npu(self) -> str | None: ...
    @property
    def vllm_ascend(self) -> str | None: ...
    @property
    def vllm(self) -> str | None: ...


@dataclass(frozen=True)
class MachineFacts:
    """The plain form of `Facts`."""

    chip: str | None = None
    cann: str | None = None
    driver: str | None = None
    torch_npu: str | None = None
    vllm_ascend: str | None = None
    vllm: str | None = None


@dataclass(frozen=True)
class Applies:
    """Whether an adaptation is to be considered for a machine, and the reason, in both languages.

    `verdict` is "yes", "no" (this chip or stack never meets the fault) or "upstream" (the installed version deals with
    it). `on_unprobed` speaks for this machine where the record's own word would be too general.
    """

    verdict: Literal["yes", "no", "upstream"]
    reason: Text
    on_unprobed: bool | None = None


@dataclass(frozen=True)
class Finding:
    """What a probe found: `fault` None means it reached no verdict. `numbers` are the measured values, by name."""

    fault: bool | None
    reason: Text
    numbers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Replaced:
    """One object that was replaced: dotted name, where the original is defined, and what stands there now."""

    name: str
    original: str
    ours: str


@dataclass(frozen=True)
class Adaptation:
    """One framework or operator fault and its cure.

    `apply(target, finding)` acts on the object its phase hands over and returns what it replaced; it runs in the phase
    named here and in no other. `on_unprobed`: it stays on where no probe has run, because it changes no result or
    because the chip is known to need it. `probe` is the id of the probe in `ascend_vl.probes` that decides, None if
    facts alone do.
    """

    id: str
    title: Text
    symptom: Text
    cause: Text
    evidence: tuple[str, ...]
    phase: Phase
    seam: str
    applies: Callable[[Facts], Applies]
    apply: Callable[[Any, Finding | None], list[Replaced]]
    on_unprobed: bool
    cost: Text
    retire: Text
    probe: str | None = None


@dataclass(frozen=True)
class Outcome:
    """How one adaptation stands in this process, and why."""

    id: str
    phase: Phase
    state: State
    reason: Text
    numbers: Mapping[str, Any] = field(default_factory=dict)
    replaced: tuple[Replaced, ...] = ()

    @property
    def in_force(self) -> bool:
        """Whether the adaptation changes anything here."""
        return self.state in IN_FORCE

    def to_json(self) -> dict[str, Any]:
        """The form of `/v1/ascend_vl/status` and of `--json`."""
        return {
            "id": self.id,
            "phase": self.phase,
            "state": self.state,
            "reason": {"en": self.reason.en, "zh": self.reason.zh},
            "numbers": dict(self.numbers),
            "replaced": [{"name": r.name, "original": r.original, "ours": r.ours} for r in self.replaced],
        }
