"""The list of adaptations, in the order in which they are applied and shown. Importing it imports no torch."""

from ascend_vl.adaptations import (
    blocking_copies,
    embedding_merge,
    float16,
    prefix_caching,
    rotary_dtype,
    rotary_exact,
    vision_exact_kernel,
    vision_head_width,
    vision_lengths,
    vision_operator,
)
from ascend_vl.adaptations.record import Adaptation

RECORDS: tuple[Adaptation, ...] = (
    float16.RECORD,
    prefix_caching.RECORD,
    embedding_merge.RECORD,
    rotary_dtype.RECORD,
    rotary_exact.RECORD,
    vision_lengths.RECORD,
    vision_head_width.RECORD,
    vision_exact_kernel.RECORD,
    # Last of those that change the tower's attention: an operator that keeps pictures apart is the last word.
    vision_operator.RECORD,
    blocking_copies.RECORD,
)


def by_id(name: str) -> Adaptation:
    """The record called `name`. Raises KeyError when there is none."""
    return {record.id: record for record in RECORDS}[name]


def ids() -> frozenset[str]:
    """Ids of all adaptations."""
    return frozenset(record.id for record in RECORDS)
