"""The operator is given the true lengths of the pictures, without an empty one, fetched once per forward."""

from typing import Any

from ascend_vl.adaptations.decide import at_least
from ascend_vl.adaptations.record import Adaptation, Applies, Facts, Finding, Replaced
from ascend_vl.language import Text


def applies(facts: Facts) -> Applies:
    """vllm-ascend 0.11 puts a 0 before the lengths; later versions take differences of true offsets."""
    if at_least(facts.vllm_ascend, "0.12.0") is False:
        return Applies("yes", Text("this version passes lengths with a leading 0", "该版本传入的长度带有前导 0"))
    return Applies(
        "upstream",
        Text(
            "this version passes true lengths (+vision-lengths saves its copy to the host in every layer)",
            "该版本传入真实长度（用 +vision-lengths 可省去逐层拷贝）",
        ),
    )


def apply(model: Any, finding: Finding | None) -> list[Replaced]:
    """Our attention, which takes the lengths once and leaves empty ones out."""
    from ascend_vl.adaptations.seams import vision_attention

    return vision_attention.install(model)[1]


RECORD = Adaptation(
    id="vision-lengths",
    title=Text("True picture lengths, once per forward", "每次前向只取一次真实图像长度"),
    symptom=Text(
        "pictures are described wrongly or mixed up; the tower is slow with many pictures",
        "图像解析错乱；多图时视觉塔变慢",
    ),
    cause=Text(
        "an empty sequence in the lengths spoils what follows it; copying lengths to the host in each layer stalls",
        "长度列表中的空序列破坏其后的结果；每层都把长度拷回主机造成停顿",
    ),
    evidence=(
        "https://www.modelscope.cn/models/Ascend-SACT/Qwen3-VL-8B-300I-Duo-vllm-ascend (problems 3 and 4)",
        "https://github.com/vllm-project/vllm-ascend/pull/7104",
    ),
    phase="construct",
    seam="visual.blocks[*].attn",
    applies=applies,
    apply=apply,
    probe="vision-zero-length",
    on_unprobed=True,
    cost=Text("saves copies", "减少拷贝"),
    retire=Text("when the probe finds an empty sequence harmless", "当空序列不再影响结果时自动停用"),
)
