import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fakes import FakeWorkers, job
from hypothesis import given, settings
from hypothesis import strategies as st

from ascend_vl.drawing.errors import Refusal
from ascend_vl.drawing.lane import Busy, DrawingFailed, Lane, LaneSettings

Make = Callable[..., Lane]


def lane(workers: FakeWorkers, limit: int = 100, needs: int = 10, on_stuck: Any = lambda: None, **changes: Any) -> Lane:
    return Lane(workers.rpc, LaneSettings(**changes), limit, lambda j: needs, on_stuck)


def run(work: Awaitable[Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, 20))


def test_a_picture_comes_with_every_step_told() -> None:
    async def body() -> None:
        workers, told = FakeWorkers(), []

        async def progress(step: int, steps: int, preview: Any) -> None:
            told.append((step, steps, len(await preview())))

        drawn = await lane(workers).draw(job(), progress)
        assert drawn.pixels == bytes([120]) * 64 * 64 * 3
        assert told == [(1, 3, 64 * 64 * 3), (2, 3, 64 * 64 * 3), (3, 3, 64 * 64 * 3)]
        assert workers.sessions == {}

    run(body())


def test_one_slice_in_flight_and_drawings_take_turns() -> None:
    async def body() -> None:
        workers = FakeWorkers()
        one = lane(workers, active=3)
        await asyncio.gather(*(one.draw(job(steps=6)) for _ in range(3)))
        assert workers.most_in_flight == 1
        slices = [name for method, name in workers.calls if method == "drawing_advance"]
        middle = slices[6:-6]
        assert all(len(set(middle[i : i + 3])) == 3 for i in range(len(middle) - 3))

    run(body())


def test_beyond_the_queue_is_429_with_a_time_to_come_back() -> None:
    async def body() -> None:
        workers = FakeWorkers(hold=lambda method: asyncio.sleep(0.001))
        one = lane(workers, active=1, waiting=2)
        tasks = [asyncio.ensure_future(one.draw(job(steps=20))) for _ in range(3)]
        await asyncio.sleep(0.01)
        assert one.active == 1
        with pytest.raises(Busy) as busy:
            await one.draw(job())
        assert busy.value.status == 429 and busy.value.retry_after >= 1
        await asyncio.gather(*tasks)
        await one.draw(job())

    run(body())


def test_first_come_first_served_within_the_workspace() -> None:
    async def body() -> None:
        workers = FakeWorkers()
        one = Lane(workers.rpc, LaneSettings(active=4), 100, lambda j: j.width, lambda: None)
        order: list[int] = []

        async def draw(width: int) -> None:
            await one.draw(job(width=width, height=32, steps=2))
            order.append(width)

        await asyncio.gather(draw(64), draw(96), draw(32))
        assert order == [64, 96, 32]
        with pytest.raises(Refusal, match="drawing-too-large"):
            await one.draw(job(width=128))

    run(body())


def test_a_client_that_leaves_frees_its_drawing_within_a_slice() -> None:
    async def body() -> None:
        workers = FakeWorkers()
        one = lane(workers)
        task = asyncio.ensure_future(one.draw(job(steps=100)))
        while len(workers.calls) < 7:
            await asyncio.sleep(0)
        before = len(workers.calls)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert workers.sessions == {} and one.active == 0
        assert [m for m, _ in workers.calls[before + 1 :]] in (["drawing_end"], [])

    run(body())


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 60)), min_size=1, max_size=6))
def test_clients_that_leave_at_any_moment_leave_nothing_behind(clients: list[tuple[int, int]]) -> None:
    async def body() -> None:
        workers = FakeWorkers()
        one = lane(workers, active=2)
        before = len(asyncio.all_tasks())

        async def client(steps: int, patience: int) -> None:
            task = asyncio.ensure_future(one.draw(job(steps=steps)))
            for _ in range(patience):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait({task})

        await asyncio.gather(*(client(*c) for c in clients))
        assert workers.sessions == {} and one.active == 0
        assert len(asyncio.all_tasks()) == before
        assert (await one.draw(job())).pixels

    run(body())


@pytest.mark.parametrize("method", ["drawing_begin", "drawing_advance", "drawing_result"])
@pytest.mark.parametrize("code", ["drawing-memory", "drawing-failed"])
def test_a_failure_on_one_rank_ends_the_drawing_on_all(method: str, code: str) -> None:
    async def body() -> None:
        failures = iter([None, None, None])

        def fail(called: str, rank: int, name: str) -> dict[str, Any] | None:
            if called == method and rank == 1 and next(failures, "now") == "now":
                return {"state": "failed", "code": code, "why": "x"}
            return None

        workers = FakeWorkers(ranks=2, fail=fail)
        one = lane(workers)
        with pytest.raises(DrawingFailed) as failed:
            while True:
                await one.draw(job())
        assert failed.value.code == code
        assert failed.value.status == (503 if code == "drawing-memory" else 500)
        assert workers.sessions == {} and one.active == 0

    run(body())


def test_a_dead_engine_is_not_hidden() -> None:
    async def body() -> None:
        async def rpc(method: str, args: tuple[Any, ...]) -> Any:
            raise RuntimeError("engine dead")

        one = Lane(rpc, LaneSettings(), 100, lambda j: 1, lambda: None)
        with pytest.raises(RuntimeError, match="engine dead"):
            await one.draw(job())
        assert one.active == 0

    run(body())


def test_a_stuck_slice_is_reported_once_it_is_overdue_and_nothing_more_is_taken() -> None:
    async def body() -> None:
        release, cries = asyncio.Event(), []
        workers = FakeWorkers(hold=lambda method: release.wait() if method == "drawing_advance" else asyncio.sleep(0))
        one = lane(workers, stuck_seconds=0.02, on_stuck=lambda: cries.append(1))
        task = asyncio.ensure_future(one.draw(job()))
        await asyncio.sleep(0.1)
        assert cries == [1] and one.stuck and not task.done()
        with pytest.raises(Refusal, match="drawing-stuck"):
            await one.draw(job())
        release.set()
        await task

    run(body())


def test_a_drawing_over_its_time_is_504_and_freed() -> None:
    async def body() -> None:
        workers = FakeWorkers(hold=lambda method: asyncio.sleep(0.005))
        one = lane(workers, time_limit=0.05)
        with pytest.raises(Refusal, match="drawing-timeout") as refused:
            await one.draw(job(steps=200))
        assert refused.value.status == 504 and workers.sessions == {}

    run(body())


def test_slices_grow_to_the_wanted_length_and_not_beyond() -> None:
    async def body() -> None:
        asked: list[int] = []
        workers = FakeWorkers(slices_a_step=3)

        async def rpc(method: str, args: tuple[Any, ...]) -> Any:
            if method == "drawing_advance":
                asked.append(args[1])
            return await workers.rpc(method, args)

        one = Lane(rpc, LaneSettings(slice_seconds=0.0105), 100, lambda j: 1, lambda: None)
        await one.draw(job(steps=4))
        assert asked[0] == 1 and set(asked[1:]) == {10}

    run(body())


def test_a_slice_that_gave_way_is_asked_for_again_and_counts_for_nothing() -> None:
    async def body() -> None:
        workers = FakeWorkers(give_way=5)
        one = Lane(workers.rpc, LaneSettings(), 100, lambda job: 1, lambda: None, lambda: True)
        await one.draw(job(steps=3))
        advanced = [name for method, name in workers.calls if method == "drawing_advance"]
        assert len(advanced) == 3 * 2 + 5 and len((await one.status())["slice_seconds"]) == 3 * 2

    run(body())


def test_chat_is_looked_for_when_a_slice_is_sent_and_not_before_its_turn() -> None:
    async def body() -> None:
        sent: list[bool] = []
        workers = FakeWorkers()

        async def rpc(method: str, args: tuple[Any, ...]) -> Any:
            if method == "drawing_advance":
                assert args[2] == (len(sent) > 0)
                sent.append(args[2])
            return await workers.rpc(method, args)

        one = Lane(rpc, LaneSettings(), 100, lambda job: 1, lambda: None, lambda: len(sent) > 0)
        await asyncio.gather(one.draw(job(steps=2)), one.draw(job(steps=2)))
        assert len(sent) == 8

    run(body())


def test_a_slice_does_not_give_way_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ascend_vl.drawing.lane.PATIENCE", 0.02)

    async def body() -> None:
        workers = FakeWorkers(give_way=10**9)
        one = Lane(workers.rpc, LaneSettings(), 100, lambda job: 1, lambda: None, lambda: True)
        assert (await one.draw(job(steps=1))).pixels

    run(body())


def test_sessions_that_nobody_wants_are_dropped_at_the_next_begin() -> None:
    async def body() -> None:
        workers = FakeWorkers()
        workers.sessions["left over"] = {"slices": 0, "steps": 1, "bytes": 1}
        await lane(workers).draw(job())
        assert workers.sessions == {}

    run(body())


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("ACTIVE", "3"), ("QUEUE", "0"), ("SLICE_MS", "20"), ("TIMEOUT", "9"), ("STUCK", "7")):
        monkeypatch.setenv(f"ASCEND_VL_DRAWING_{name}", value)
    assert LaneSettings.from_environment() == LaneSettings(3, 0, 9.0, 0.02, 7.0)
