"""Copies to the device inside the vision tower wait until they are done."""

from typing import Any

from ascend_vl.adaptations.record import Adaptation, Applies, Facts, Finding, Replaced
from ascend_vl.language import Text


def applies(facts: Facts) -> Applies:
    """The tower copies positions to the device and indexes with them at once."""
    return Applies("yes", Text("the tower indexes with what it copied without waiting", "视觉塔在异步拷贝后立即索引"))


def apply(model: Any, finding: Finding | None) -> list[Replaced]:
    """Run the tower's forward with every non-blocking copy made blocking."""
    from ascend_vl.adaptations.seams import copies

    return copies.make_blocking(model.visual, "visual")


RECORD = Adaptation(
    id="blocking-copies",
    title=Text("Blocking copies in the vision tower", "视觉塔内使用阻塞拷贝"),
    symptom=Text(
        "a picture ends in: aclrtPointerGetAttributes, error code is 107000; or features are wrong at random",
        "图片请求报错：aclrtPointerGetAttributes, error code is 107000；或特征随机出错",
    ),
    cause=Text(
        "an asynchronous copy to the device races with the indexing that reads it (310P in RC mode)",
        "异步主机到设备拷贝与随后的索引竞争（310P RC 模式）",
    ),
    evidence=("https://github.com/vllm-project/vllm-ascend/issues/8981",),
    phase="construct",
    seam="visual.forward",
    applies=applies,
    apply=apply,
    probe="copy-race",
    on_unprobed=False,
    cost=Text("a few waits per picture", "每张图片数次等待"),
    retire=Text("when the probe reads what it copied every time", "当探测每次都能读到拷贝内容时自动停用"),
)
