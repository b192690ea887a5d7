"""The plan as JSON, schema 1. Secrets are named, never shown."""

from typing import Any

from ascend_vl.language import Text
from ascend_vl.plan.memory import Memory
from ascend_vl.plan.parts import Plan
from ascend_vl.plan.wording import change_text, memory_sum


def plan_json(plan: Plan) -> dict[str, Any]:
    """Stable keys; bytes are integers."""
    machine = plan.machine
    return {
        "schema": 1,
        "model": {
            "name": plan.model.name,
            "family": plan.model.family,
            "parameters": plan.model.parameters,
            "file_bytes": plan.model.file_bytes,
            "quantised": plan.model.quantised or None,
        },
        "machine": {
            "described": machine.described,
            "emulated": machine.emulated,
            "kind": machine.kind,
            "product": machine.product,
            "chips": len(machine.chips),
            "chip_memory_bytes": machine.chip_bytes,
            "vllm_ascend": machine.vllm_ascend,
            "cann": machine.cann,
            "driver": machine.driver,
        },
        "engine": plan.engine,
        "command": plan.command,
        "environment": plan.environment,
        "secrets": sorted(plan.secrets),
        "values": [
            {
                "name": value.name,
                "value": value.value,
                "source": value.source,
                "rule": value.rule_id,
                "reason": str(value.reason),
            }
            for value in plan.values
        ],
        "adaptations": plan.adaptations,
        "warnings": [str(warning) for warning in plan.warnings],
        "drawing": plan.drawing,
        "tensor_parallel_size": plan.tensor_parallel_size,
        "nodes": plan.nodes,
        "memory": memory_json(plan.memory),
        "fits": plan.memory.fits,
    }


def memory_json(memory: Memory) -> dict[str, Any]:
    """Every term of the sum in bytes, the sum in words, and the changes that would fit."""
    return {
        "total": memory.choice.total,
        "utilisation": memory.choice.utilisation,
        "budget": memory.budget,
        "weights": memory.weights,
        "non_kv": memory.non_kv,
        "non_kv_rule": memory.non_kv_rule,
        "rotary_table": memory.rotary,
        "tower_upper_estimate": memory.tower,
        "language_upper_estimate": memory.language,
        "other_processes": memory.others,
        "left": memory.left,
        "nz_copies": memory.copies,
        "kv_share": memory.kv_share,
        "kv": memory.kv,
        "kv_token": memory.kv_token,
        "kv_tokens": memory.kv_tokens,
        "mask": memory.mask,
        "drawing_upper_estimate": memory.drawing,
        "outside": memory.outside,
        "short": memory.short,
        "sum": str(memory_sum(memory)),
        "changes": [
            {"what": change.what, "value": change.value, "text": str(change_text(change))} for change in memory.changes
        ],
    }


def text_json(text: Text) -> dict[str, str]:
    """Both languages."""
    return {"en": text.en, "zh": text.zh}
