"""Copies to the device wait until they are done."""

from typing import Any

from ascend_vl.adaptations.record import Adaptation, Applies, Facts, Finding, Replaced
from ascend_vl.language import Text


def applies(facts: Facts) -> Applies:
    """Tower and runner copy to the device and read what they copied at once."""
    return Applies("yes", Text("what was copied is read without waiting", "异步拷贝后立即读取"))


def apply(model: Any, finding: Finding | None) -> list[Replaced]:
    """Make the copies of this worker blocking."""
    from ascend_vl.adaptations.seams import copies

    return copies.make_blocking()


RECORD = Adaptation(
    id="blocking-copies",
    title=Text("Blocking copies", "阻塞拷贝"),
    symptom=Text(
        "a picture ends in: aclrtPointerGetAttributes, error code is 107000; or features are wrong at random",
        "图片请求报错：aclrtPointerGetAttributes, error code is 107000；或特征随机出错",
    ),
    cause=Text(
        "an asynchronous copy to the device races with the operator that reads it (310P in RC mode)",
        "异步主机到设备拷贝与随后的索引竞争（310P RC 模式）",
    ),
    evidence=("https://github.com/vllm-project/vllm-ascend/issues/8981",),
    phase="construct",
    seam="torch.Tensor.to, copy_, npu",
    applies=applies,
    apply=apply,
    probe="copy-race",
    on_unprobed=False,
    cost=Text("waits for the host in every step", "每一步都有主机等待"),
    retire=Text("when the probe reads what it copied every time", "当探测每次都能读到拷贝内容时自动停用"),
)
