"""Two tensor-parallel ranks behind a real server, by vLLM's own `mp` executor."""

import asyncio
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import pytest
from test_served import asynchronous, chat, draw, left_nothing, slices

from ascend_vl.drawing import client as drawing

pytestmark = pytest.mark.engine

FAULTS = Path(__file__).parent / "faults"


@pytest.fixture(scope="module")
def two_ranks(tiny: Path, engine_environment: None) -> Iterator[Any]:
    from ascend_vl.plan import Wishes
    from ascend_vl.serve.process import running

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(FAULTS))
        wishes = Wishes(api_key="test-key", tensor_parallel_size=2, max_model_len=2048)
        with running(tiny, wishes) as server:
            yield server


def check(server: Any, case: str) -> None:
    """The case through the server against the stored values."""
    asked = oracle.meta(case)
    pictures = [oracle.DATA / "ref0.png"] if case == "edit" else []
    size, recipe = f"{asked['width']}x{asked['height']}", "dev" if case == "dev" else "full"
    with server.client() as client:
        answer = drawing.draw(
            *(client, asked["prompt"], pictures),
            **{"size": size, "seed": asked["seed"], "steps": asked["steps"], "recipe": recipe, "trace": True},
        )
    with np.load(io.BytesIO(answer.trace or b"")) as arrays:
        oracle.check({name: arrays[name] for name in arrays.files}, case)


@pytest.mark.parametrize("case", oracle.CASES)
def test_two_ranks_draw_what_the_reference_drew(two_ranks: Any, case: str) -> None:
    check(two_ranks, case)


def test_and_beside_another_drawing_and_chat(two_ranks: Any) -> None:
    async def body() -> None:
        async with asynchronous(two_ranks) as client:
            alone = await chat(client, two_ranks.model, 16)
            before = await slices(client)
            other = asyncio.ensure_future(draw(client, steps=200))
            while await slices(client) < before + 4:
                await asyncio.sleep(0.05)
            beside, *_ = await asyncio.gather(
                chat(client, two_ranks.model, 16),
                *(asyncio.to_thread(check, two_ranks, case) for case in oracle.CASES),
            )
            assert not other.done() and beside == alone
            other.cancel()
            await asyncio.gather(other, return_exceptions=True)
            await left_nothing(client)

    asyncio.run(body())


@pytest.mark.parametrize("seed", [601, 602, 603, 604])
def test_out_of_memory_on_rank_1_ends_that_drawing_and_nothing_else(two_ranks: Any, seed: int) -> None:
    async def body() -> None:
        async with asynchronous(two_ranks) as client:
            small = {"size": "96x64", "steps": 12}
            failed, kept = await asyncio.gather(draw(client, **small, seed=seed), draw(client, **small, seed=1))
            assert failed.status_code == 503
            assert failed.json()["error"]["code"] == "drawing-memory" and "Rank 1" in failed.json()["error"]["message"]
            again = await draw(client, **small, seed=1)
            assert kept.status_code == again.status_code == 200
            assert kept.json()["data"][0]["b64_json"] and again.json()["data"][0]["b64_json"]
            await left_nothing(client)

    asyncio.run(body())
    check(two_ranks, "t2i")
