"""Vision heads are rotated element by element where the rotary operator's values are wrong."""

from typing import Any

from ascend_vl.adaptations.record import Adaptation, Applies, Facts, Finding, Replaced
from ascend_vl.language import Text


def applies(facts: Facts) -> Applies:
    """Every version rotates vision heads with npu_rotary_mul."""
    return Applies("yes", Text("the tower rotates with npu_rotary_mul", "视觉塔用 npu_rotary_mul 做旋转"))


def apply(model: Any, finding: Finding | None) -> list[Replaced]:
    """Replace the rotation of each block; on vllm-ascend 0.11, whose blocks rotate by themselves, use our attention."""
    from ascend_vl.adaptations.seams import rotary, vision_attention

    attentions = vision_attention.blocks_of(model)
    if hasattr(attentions[0], "apply_rotary_emb"):
        return rotary.by_elements(attentions)
    settings, replaced = vision_attention.install(model)
    settings.rotary_by_elements = True
    return replaced


RECORD = Adaptation(
    id="rotary-exact",
    title=Text("Vision rotation element by element", "视觉旋转位置编码逐元素计算"),
    symptom=Text(
        "pictures are described wrongly although nothing fails: shapes are in the wrong places",
        "没有报错但图片描述错误：物体位置不对",
    ),
    cause=Text(
        "npu_rotary_mul casts its tables to fewer bits than it was given",
        "npu_rotary_mul 把传入的表转换成位数更少的类型",
    ),
    evidence=("assumed: the published 300I Duo port saw the operator cast its result (problem 1)",),
    phase="construct",
    seam="visual.blocks[*].attn.apply_rotary_emb",
    applies=applies,
    apply=apply,
    probe="rotary-values",
    on_unprobed=False,
    cost=Text(
        "a few elementwise operators in float32 a rotation instead of one",
        "每次旋转由一个算子变为若干 float32 逐元素算子",
    ),
    retire=Text("when the probe finds the operator's values within the bound", "当算子数值误差在界限内时自动停用"),
)
