"""Vision attention by an operator that keeps pictures apart."""

from typing import Any

from ascend_vl.adaptations.record import Adaptation, Applies, Facts, Finding, Replaced
from ascend_vl.language import Text


def applies(facts: Facts) -> Applies:
    """Every version hands several pictures to one call."""
    return Applies("yes", Text("several pictures go into one call", "多张图片在一次调用中计算"))


def apply(model: Any, finding: Finding | None) -> list[Replaced]:
    """Our attention, by the operator and width that the probe found right."""
    from ascend_vl.adaptations.seams import attention_operators, vision_attention

    settings, replaced = vision_attention.install(model)
    _, size = vision_attention.head_of(vision_attention.blocks_of(model)[0])
    settings.operator = str(finding.numbers.get("operator", "prompt-flash")) if finding else "prompt-flash"
    width = finding.numbers.get("width") if finding else None
    settings.width = int(width) if width else attention_operators.default_width(settings.operator, size)
    return replaced


RECORD = Adaptation(
    id="vision-operator",
    title=Text("Vision attention by an operator that keeps pictures apart", "使用能区分多张图片的注意力算子"),
    symptom=Text(
        "one picture is described well, several are mixed up",
        "单图正确，多图解析错乱",
    ),
    cause=Text(
        "the operator lets pictures of one call look at each other",
        "算子使同一次调用中的图片互相可见",
    ),
    evidence=("https://www.modelscope.cn/models/Ascend-SACT/Qwen3-VL-8B-300I-Duo-vllm-ascend (problem 3)",),
    phase="construct",
    seam="visual.blocks[*].attn",
    applies=applies,
    apply=apply,
    probe="vision-borders",
    on_unprobed=False,
    cost=Text(
        "where no one-call operator is right: one call for each size of picture",
        "若没有可用的单次调用算子：每种尺寸一次调用",
    ),
    retire=Text("when the framework's own operator keeps sequences apart", "当框架自带算子能正确区分序列时自动停用"),
)
