"""Answers that look broken without any baseline: empty, repeating, runs of token id 0, garbled."""

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

KINDS = ("empty", "zero_run", "repetition", "garble")
# Eight equal tokens or characters in a row: '!!!!!!!!' is token id 0 of Qwen's vocabulary, the sign of an overflow.
RUN = 8
# A phrase said this often back to back is a loop.
PHRASES = 6
WINDOW = 128


def degenerate(text: str, token_ids: Sequence[int] | None = None) -> list[str]:
    """Which of `KINDS` an answer shows, in that order; empty for a sound answer.

    empty: no visible character. zero_run: token id 0 (or `!`) eight times in a row. repetition: a phrase six times
    back to back, or a window of 128 tokens with fewer than 16 distinct ones. garble: replacement or private-use
    characters above 2 %, or control characters other than white space.
    """
    found = []
    if not text.strip():
        found.append("empty")
    if _zero_run(token_ids) if token_ids is not None else "!" * RUN in text:
        found.append("zero_run")
    if _repeats(text) or (token_ids is not None and _narrow(token_ids)):
        found.append("repetition")
    if _garbled(text):
        found.append("garble")
    return found


def _zero_run(token_ids: Sequence[int]) -> bool:
    run = 0
    for token in token_ids:
        run = run + 1 if token == 0 else 0
        if run >= RUN:
            return True
    return False


# Rules, dot leaders, table borders and drawn boxes repeat in sound answers.
_RULE = re.compile(r"[\W\d_]+")


def _repeats(text: str) -> bool:
    """A phrase of up to 80 characters with a letter in it, six times in a row; or 64 characters of anything else.

    A stretch has period p where each character equals the one p later.
    """
    codes = np.frombuffer(text[-4096:].encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    for period in range(1, min(80, codes.size // PHRASES) + 1):
        if not _may_repeat(codes, period):
            continue
        breaks = np.flatnonzero(codes[period:] != codes[:-period])
        edges = np.concatenate(([-1], breaks, [codes.size - period]))
        stretches = np.diff(edges) - 1
        longest = int(stretches.max())
        if longest + period < max(24, PHRASES * period):
            continue
        start = int(edges[stretches.argmax()]) + 1
        unit = text[-4096:][start : start + period]
        if not _RULE.fullmatch(unit) or (longest + period >= 64 and not set(unit) & set(" -|=_.*#~\n")):
            return True
    return False


def _may_repeat(codes: npt.NDArray[np.uint32], period: int) -> bool:
    """Whether samples leave room for a stretch long enough; one that long holds three samples in a row that agree."""
    step = max(1, (max(24, PHRASES * period) - period) // 4)
    equal = codes[period::step] == codes[:-period:step]
    return bool((equal[:-2] & equal[1:-1] & equal[2:]).any())


def _narrow(token_ids: Sequence[int]) -> bool:
    return any(
        len(Counter(token_ids[start : start + WINDOW])) < WINDOW // 8
        for start in range(0, len(token_ids) - WINDOW + 1, WINDOW // 2)
    )


# Control characters, replacement character, surrogates, private use.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_ODD = re.compile("[\ufffd\ud800-\udfff\ue000-\uf8ff]")


def _garbled(text: str) -> bool:
    return bool(_CONTROL.search(text)) or len(_ODD.findall(text)) > 0.02 * len(text)
