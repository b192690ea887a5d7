"""Whether a row speaks of a machine."""

from dataclasses import dataclass

from ascend_vl.rules.rows import When
from ascend_vl.rules.versions import in_range


@dataclass(frozen=True)
class Subject:
    """What conditions are judged by: the kind of chip, the product, the vllm-ascend version; None is unknown."""

    kind: str | None
    product: str | None = None
    version: str | None = None


def matches(when: When, subject: Subject, tensor_parallel: int | None = None) -> bool:
    """Whether `when` speaks of that subject. What is unknown matches only what is not asked for."""
    if when.kinds and subject.kind not in when.kinds:
        return False
    if when.products and subject.product not in when.products:
        return False
    if when.tensor_parallel and (tensor_parallel or 0) <= 1:
        return False
    return in_range(subject.version, when.since, when.before)
