"""Two ranks: the same pictures, and nobody waits for ever when one of them fails."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import pytest
from pair import Pair, pair

from ascend_vl.drawing.job import Job, to_wire

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def ranks(tiny: Path) -> Iterator[Pair]:
    with pair(tiny) as both:
        yield both


def draw(ranks: Pair, job: Job, layers: int) -> list[dict[str, Any]]:
    """Statuses at the end, as the lane would see them: it stops at the first failure and ends the drawing."""
    statuses = ranks.call("drawing_begin", "one", to_wire(job), ["one"])
    while all(s["state"] == "running" for s in statuses):
        statuses = ranks.call("drawing_advance", "one", layers)
    if all(s["state"] == "done" for s in statuses):
        return ranks.call("drawing_result", "one")
    ranks.call("drawing_end", "one")
    return statuses


def check(out: list[dict[str, Any]], case: str) -> None:
    with np.load(io.BytesIO(out[0]["trace"])) as arrays:
        oracle.check({name: arrays[name] for name in arrays.files}, case)
    assert "pixels" not in out[1]


@pytest.mark.parametrize("case", oracle.CASES)
def test_two_ranks_draw_what_the_reference_drew(ranks: Pair, case: str, tokenizer: Any, image_processor: Any) -> None:
    check(draw(ranks, oracle.job(case, tokenizer, image_processor), 3), case)


# A long slice goes on from the prefix to the first step, with a rank that stands in.
@pytest.mark.parametrize("layers", [3, 1000])
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("where", "count"),
    [
        ("begin", 1),
        ("rehearse", 1),
        ("rehearse", 4),
        ("attention", 1),
        ("attention", 9),
        ("normed", 4),
        ("mlp", 7),
        ("step", 2),
        ("entering", 3),
        ("rows", 2),
        ("picture", 1),
        ("prediction", 3),
    ],
)
def test_one_rank_out_of_memory_fails_the_drawing_and_nothing_else(
    ranks: Pair, rank: int, layers: int, where: str, count: int, tokenizer: Any, image_processor: Any
) -> None:
    job = oracle.job("t2i", tokenizer, image_processor)
    ranks.call("break", rank, where, count)
    statuses = draw(ranks, job, layers)
    assert statuses[rank]["state"] == "failed" and statuses[rank]["code"] == "drawing-memory"
    assert all(status["sessions"] == [] for status in ranks.call("drawing_status"))
    check(draw(ranks, job, layers), "t2i")
