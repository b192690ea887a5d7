"""Rotated vision heads get back the dtype they came with."""

from typing import Any

from ascend_vl.adaptations.record import Adaptation, Applies, Facts, Finding, Replaced
from ascend_vl.language import Text


def applies(facts: Facts) -> Applies:
    """Every version calls npu_rotary_mul in the tower, and none casts its result back."""
    return Applies(
        "yes",
        Text("the tower calls npu_rotary_mul and does not cast back", "视觉塔调用 npu_rotary_mul 且不转换回原类型"),
    )


def apply(model: Any, finding: Finding | None) -> list[Replaced]:
    """Wrap the rotation of each block; on vllm-ascend 0.11, whose blocks rotate by themselves, use our attention."""
    from ascend_vl.adaptations.seams import rotary, vision_attention

    attentions = vision_attention.blocks_of(model)
    if hasattr(attentions[0], "apply_rotary_emb"):
        return rotary.cast_back(attentions)
    settings, replaced = vision_attention.install(model)
    settings.cast_rotary = True
    return replaced


RECORD = Adaptation(
    id="rotary-dtype",
    title=Text("Rotary output in the input's dtype", "旋转位置编码输出恢复为输入类型"),
    symptom=Text(
        "a picture ends in an error about Half and Float in the projection after vision attention",
        "图片请求在视觉注意力后的线性层报 Half 与 Float 类型不一致",
    ),
    cause=Text(
        "npu_rotary_mul returns float32 for float16 input",
        "npu_rotary_mul 输入 float16 却输出 float32",
    ),
    evidence=("https://www.modelscope.cn/models/Ascend-SACT/Qwen3-VL-8B-300I-Duo-vllm-ascend (problem 1)",),
    phase="construct",
    seam="visual.blocks[*].attn.apply_rotary_emb",
    applies=applies,
    apply=apply,
    probe="rotary-dtype",
    on_unprobed=True,
    cost=Text("one cast, nothing where the dtype is right already", "一次类型转换；类型已正确时无开销"),
    retire=Text("when the probe gets the input's dtype back", "当探测结果类型与输入一致时自动停用"),
)
