"""The exact vision attention kernel instead of the approximate one."""

from typing import Any

from ascend_vl.adaptations.decide import at_least
from ascend_vl.adaptations.record import Adaptation, Applies, Facts, Finding, Replaced
from ascend_vl.language import Text


def applies(facts: Facts) -> Applies:
    """vllm-ascend prefers the approximate kernel on 310P since 0.23."""
    if not (facts.chip or "").startswith("310P"):
        return Applies("no", Text("only 310P has an approximate kernel", "只有 310P 使用近似内核"))
    if at_least(facts.vllm_ascend, "0.23.0") is False:
        return Applies("no", Text("this version calls the exact kernel", "该版本调用精确内核"))
    return Applies("yes", Text("this version prefers the approximate kernel", "该版本优先使用近似内核"))


def apply(model: Any, finding: Finding | None) -> list[Replaced]:
    """Our attention, by the exact operator that the probe found."""
    from ascend_vl.adaptations.seams import attention_operators, vision_attention

    settings, replaced = vision_attention.install(model)
    _, size = vision_attention.head_of(vision_attention.blocks_of(model)[0])
    settings.operator = str(finding.numbers.get("operator", "unpad")) if finding else "unpad"
    width = finding.numbers.get("width") if finding else None
    settings.width = int(width) if width else attention_operators.default_width(settings.operator, size)
    return replaced


RECORD = Adaptation(
    id="vision-exact-kernel",
    title=Text("Exact vision attention", "使用精确的视觉注意力内核"),
    symptom=Text(
        "answers about details of pictures are worse than on other hardware",
        "对图片细节的回答比其他硬件差",
    ),
    cause=Text(
        "vllm-ascend calls _npu_flash_attention_unpad_v2 with kernel type 2, which its code calls approximate",
        "vllm-ascend 以 kernel type 2 调用 _npu_flash_attention_unpad_v2，其代码称之为近似计算",
    ),
    evidence=("https://github.com/vllm-project/vllm-ascend/pull/11375",),
    phase="construct",
    seam="visual.blocks[*].attn",
    applies=applies,
    apply=apply,
    probe="vision-precision",
    on_unprobed=False,
    cost=Text("the exact kernel may be slower; not measured on hardware", "精确内核可能更慢；尚无硬件数据"),
    retire=Text("when the probe finds the approximate kernel within the bound", "当近似内核误差在界限内时自动停用"),
)
