"""Vision heads are padded to the smallest width the operator takes."""

from typing import Any

from ascend_vl.adaptations.decide import at_least
from ascend_vl.adaptations.record import Adaptation, Applies, Facts, Finding, Replaced
from ascend_vl.language import Text


def applies(facts: Facts) -> Applies:
    """vllm-ascend pads heads between 64 and 128 to 128 since 0.15 (0.18 on 310P)."""
    if at_least(facts.vllm_ascend, "0.15.0") is False:
        return Applies("yes", Text("this version passes heads as they are", "该版本不对头维度做填充"))
    return Applies("upstream", Text("this version pads heads to 128", "该版本已将头维度填充到 128"))


def apply(model: Any, finding: Finding | None) -> list[Replaced]:
    """Our attention, with heads padded to the probed width; the scale stays that of the unpadded head."""
    from ascend_vl.adaptations.seams import attention_operators, vision_attention

    settings, replaced = vision_attention.install(model)
    _, size = vision_attention.head_of(vision_attention.blocks_of(model)[0])
    probed = finding.numbers.get("width") if finding else None
    settings.width = int(probed) if probed else attention_operators.default_width(settings.operator, size)
    return replaced


RECORD = Adaptation(
    id="vision-head-width",
    title=Text("Vision heads padded to an accepted width", "视觉注意力头填充到可接受的宽度"),
    symptom=Text(
        "a picture ends in: SelfAttentionOperation setup failed!",
        "图片请求报错：SelfAttentionOperation setup failed!",
    ),
    cause=Text(
        "heads of 8B, 30B-A3B, 32B, 235B and HiDream-O1 are 72 wide, the operator takes multiples of 16",
        "8B、30B-A3B、32B、235B 与 HiDream-O1 的头维度为 72，而算子只接受 16 的倍数",
    ),
    evidence=(
        "https://www.modelscope.cn/models/Ascend-SACT/Qwen3-VL-8B-300I-Duo-vllm-ascend (problem 2)",
        "https://github.com/vllm-project/vllm-ascend/issues/6842",
    ),
    phase="construct",
    seam="visual.blocks[*].attn",
    applies=applies,
    apply=apply,
    probe="vision-head-width",
    on_unprobed=True,
    cost=Text(
        "72 -> 80: about an eighth more attention (128 would be 1.7 times)",
        "72 -> 80：注意力约多八分之一（填充到 128 约为 1.7 倍）",
    ),
    retire=Text("when the probe's operator takes the heads as they are", "当算子可直接接受原宽度时自动停用"),
)
