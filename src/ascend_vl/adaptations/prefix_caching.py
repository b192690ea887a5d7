"""No prefix caching where a repeated picture request fails."""

from collections.abc import MutableMapping
from typing import Any

from ascend_vl.adaptations.decide import at_least
from ascend_vl.adaptations.record import Adaptation, Applies, Facts, Finding, Replaced
from ascend_vl.language import Text


def applies(facts: Facts) -> Applies:
    """Known for 310P with 0.11; elsewhere a recorded repeat of `verify` on this machine decides."""
    known = (facts.chip or "").startswith("310P") and at_least(facts.vllm_ascend, "0.12.0") is False
    if known:
        return Applies("yes", Text("310P with vllm-ascend 0.11", "310P 与 vllm-ascend 0.11"))
    as_upstream = Text(
        "as upstream, until a repeat recorded by verify fails here", "与上游一致，除非 verify 的重复请求记录失败"
    )
    return Applies("yes", as_upstream, on_unprobed=False)


def apply(arguments: MutableMapping[str, Any], finding: Finding | None) -> list[Replaced]:
    """Switch prefix caching off; on 0.11, where no repeat was recorded, also keep prefill and decode apart.

    vllm-ascend 0.11 sends mixed batches and cache hits to npu_fused_infer_attention_score, which 310P does not have;
    later versions do not know that setting.
    """
    arguments["enable_prefix_caching"] = False
    if finding is not None:
        return []
    extra = dict(arguments.get("additional_config") or {})
    scheduler = dict(extra.get("ascend_scheduler_config") or {})
    extra["ascend_scheduler_config"] = {"enabled": True} | scheduler
    arguments["additional_config"] = extra
    return []


RECORD = Adaptation(
    id="prefix-caching",
    title=Text("No prefix caching", "关闭前缀缓存"),
    symptom=Text(
        "a picture request is answered once; the identical second request ends the engine",
        "图片请求第一次正常，完全相同的第二次请求使引擎崩溃",
    ),
    cause=Text(
        "prefill on cached blocks, and batches of prefill and decode, call an operator that 310P does not have",
        "命中缓存的预填充、以及预填充与解码混合的批次，调用了 310P 没有的算子",
    ),
    evidence=(
        "https://github.com/vllm-project/vllm-ascend/issues/3860 (comment of 2025-12-17)",
        "vllm-ascend 0.11.0 attention/attention_v1.py (_forward_v1_style); torch_npu documents the "
        "operator for A2 and A3",
    ),
    phase="config",
    seam="--no-enable-prefix-caching, --additional-config ascend_scheduler_config",
    applies=applies,
    apply=apply,
    probe="repeat-request",
    on_unprobed=True,
    cost=Text("repeated prompts are computed again; no mixed batches", "重复的提示需重新计算；不混合批次"),
    retire=Text("vllm-ascend 0.12 or later", "vllm-ascend 0.12 及以后"),
)
