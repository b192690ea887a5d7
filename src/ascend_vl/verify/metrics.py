"""The metrics of a comparison, each a pure function of two answers. Definitions are the contract of `compare`."""

from collections.abc import Sequence

from rapidfuzz.distance import Indel, LCSseq

from ascend_vl.verify.numbers import quantities


def token_match(base: Sequence[int], candidate: Sequence[int]) -> float:
    """Longest common subsequence over the longer length: 1 for two empty sequences, 0 when one is empty.

    Token ids are non-negative, so rapidfuzz's hashing of elements is exact; its LCS is bit-parallel (Hyyro 2004),
    64 cells a machine word.
    """
    longer = max(len(base), len(candidate))
    return LCSseq.similarity(base, candidate) / longer if longer else 1.0


def common_prefix(base: Sequence[object], candidate: Sequence[object]) -> int:
    """Number of equal leading tokens."""
    for index, (a, b) in enumerate(zip(base, candidate, strict=False)):
        if a != b:
            return index
    return min(len(base), len(candidate))


def prefix_match(base: Sequence[int], candidate: Sequence[int]) -> float:
    """Common prefix over the longer length; 1 for two empty sequences."""
    longer = max(len(base), len(candidate))
    return common_prefix(base, candidate) / longer if longer else 1.0


def first_divergence(base: Sequence[object], candidate: Sequence[object]) -> int | None:
    """Index of the first position where the sequences differ (one ending is a difference), None when equal."""
    prefix = common_prefix(base, candidate)
    return None if prefix == len(base) == len(candidate) else prefix


def text_similarity(base: str, candidate: str) -> float:
    """Normalised Indel similarity over characters: 1 - (insertions + deletions) / (sum of lengths)."""
    return Indel.normalized_similarity(base, candidate)


def jaccard(base: frozenset[object], candidate: frozenset[object]) -> float | None:
    """Shared over all; None for two empty sets: nothing was stated, so nothing agrees."""
    union = base | candidate
    return len(base & candidate) / len(union) if union else None


def numbers_match(base: str, candidate: str) -> float:
    """1 when both texts state the same numbers, dates and amounts in the same order (also none at all), else 0."""
    return float(base == candidate or quantities(base) == quantities(candidate))


def length_ratio(base: Sequence[int], candidate: Sequence[int]) -> float | None:
    """Candidate's length over base's, in tokens; 1 for two empty sequences, None when only the base is empty."""
    if not base:
        return None if candidate else 1.0
    return len(candidate) / len(base)
