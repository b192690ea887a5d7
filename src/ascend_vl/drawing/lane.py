"""The lane that drawings go through: bounded, apart from chat's scheduler, one slice in flight over all drawings.

vLLM's engine runs every queued call before its next step for chat; so a second slice is never queued while one is
out, and drawings take turns at a first-in-first-out gate.
"""

import asyncio
import contextlib
import logging
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from ascend_vl.drawing import metrics, settings
from ascend_vl.drawing.errors import Refusal
from ascend_vl.drawing.job import Job, to_wire
from ascend_vl.language import Text

logger = logging.getLogger("vllm.plugins.ascend_vl")

RECENT = 128
# Seconds for which a slice gives way to a step of chat that does not come.
PATIENCE = 2.0

Rpc = Callable[..., Awaitable[list[dict[str, Any]]]]
Progress = Callable[[int, int, Callable[[], Awaitable[bytes | None]]], Awaitable[None]]


@dataclass(frozen=True)
class LaneSettings:
    """`active` drawings at once, `waiting` more in the queue; seconds a drawing may take, seconds aimed at for a slice,
    and seconds after which a slice counts as stuck."""

    active: int = 2
    waiting: int = 8
    time_limit: float = 3600.0
    slice_seconds: float = 0.05
    stuck_seconds: float = 300.0

    @classmethod
    def from_environment(cls) -> "LaneSettings":
        """ASCEND_VL_DRAWING_ACTIVE, _QUEUE, _TIMEOUT (s), _SLICE_MS, _STUCK (s)."""
        number = settings.number
        return cls(
            int(number("ACTIVE")), int(number("QUEUE")), number("TIMEOUT"), number("SLICE_MS") / 1000, number("STUCK")
        )


@dataclass(frozen=True)
class Drawn:
    """A finished drawing: raw RGB bytes (H * W * 3), its trace as .npz or None, seconds it took."""

    name: str
    pixels: bytes
    trace: bytes | None
    seconds: float


class Lane:
    """Draws jobs by calling worker methods through `rpc(method, args)`, which answers with one status a rank.

    `limit` is the workers' workspace and `needs(job)` a job's share of it, both in bytes; `chatting()` tells whether
    chat requests are under way.
    """

    def __init__(
        self,
        rpc: Rpc,
        settings: LaneSettings,
        limit: int,
        needs: Callable[[Job], int],
        on_stuck: Callable[[], None],
        chatting: Callable[[], bool] = lambda: False,
    ) -> None:
        self._rpc, self.settings, self._chatting = rpc, settings, chatting
        self._limit, self._needs, self._on_stuck = limit, needs, on_stuck
        self._gate = asyncio.Lock()
        self._queue: deque[_Ticket] = deque()
        self._active: dict[str, int] = {}
        self._took = 10.0
        self._slices: deque[float] = deque(maxlen=RECENT)
        self.stuck = False

    @property
    def active(self) -> int:
        """Drawings under way."""
        return len(self._active)

    def check(self, count: int = 1) -> None:
        """Raises Refusal 429 when `count` more drawings would not find a place, 503 when the engine is stuck."""
        if self.stuck:
            raise _stuck()
        free = self.settings.active + self.settings.waiting - len(self._active) - len(self._queue)
        if count > free:
            waves = (len(self._queue) + len(self._active)) / self.settings.active
            raise Busy(max(1, round(self._took * waves)))

    def check_size(self, job: Job) -> None:
        """Raises Refusal for a job that the workspace cannot hold even alone."""
        self.check_room(job.width, job.height, self._needs(job))

    def check_room(self, width: int, height: int, needed: int) -> None:
        """Raises Refusal for a picture that needs more bytes than the workspace has."""
        if needed <= self._limit:
            return
        raise Refusal(
            "drawing-too-large",
            Text(
                f"{width}x{height} with these references is too large here.",
                f"{width}x{height} 及其参考图过大。",
            ),
            Text(
                f"It needs {needed / 2**20:.0f} MiB; the workspace is {self._limit / 2**20:.0f} MiB.",
                f"需要 {needed / 2**20:.0f} MiB，而工作区为 {self._limit / 2**20:.0f} MiB。",
            ),
            Text(
                "Ask for a smaller picture, or start the server with a larger ASCEND_VL_DRAWING_WORKSPACE_MIB.",
                "请缩小尺寸，或以更大的 ASCEND_VL_DRAWING_WORKSPACE_MIB 启动服务。",
            ),
            "size",
        )

    async def status(self) -> dict[str, Any]:
        """Drawings under way and waiting, seconds of the last slices, and each worker's own account."""
        workers = await self._call("drawing_status")
        lane = {"active": len(self._active), "waiting": len(self._queue), "stuck": self.stuck}
        return {**lane, "slice_seconds": list(self._slices), "workers": workers}

    async def draw(self, job: Job, progress: Progress | None = None) -> Drawn:
        """Draw a job, in its turn. `progress(step, steps, preview)` is awaited after each step.

        Cancelling stops the drawing within one slice and frees it. Raises Refusal (429, 503, 504) and DrawingFailed.
        """
        self.check()
        self.check_size(job)
        name = uuid.uuid4().hex
        outcome = "failed"
        try:
            async with self._place(name, self._needs(job)):
                started = time.monotonic()
                try:
                    drawn = await asyncio.wait_for(self._run(name, job, progress, started), self.settings.time_limit)
                except asyncio.TimeoutError:
                    raise _timed_out(self.settings.time_limit) from None
                self._took = 0.7 * self._took + 0.3 * drawn.seconds
                metrics.DURATION.observe(drawn.seconds)
                outcome = "drawn"
                return drawn
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        finally:
            metrics.FINISHED.labels(outcome).inc()

    async def _run(self, name: str, job: Job, progress: Progress | None, started: float) -> Drawn:
        pace = _Pace(self.settings.slice_seconds)
        try:
            statuses = await self._call("drawing_begin", name, to_wire(job), list(self._active))
            step = 0
            while statuses[0]["state"] == "running":
                status = statuses[0]
                statuses = await self._slice(name, pace.layers(status["phase"]))
                pace.learn(status["phase"], statuses[0])
                metrics.SLICES.observe(statuses[0]["seconds"])
                self._slices.append(statuses[0]["seconds"])
                if statuses[0]["step"] > step:
                    step = statuses[0]["step"]
                    metrics.STEPS.inc()
                    if progress is not None:
                        await progress(step, statuses[0]["steps"], lambda: self._preview(name))
            out = (await self._call("drawing_result", name))[0]
            return Drawn(name, out["pixels"], out.get("trace"), time.monotonic() - started)
        finally:
            await self._end(name)

    async def _slice(self, name: str, layers: int) -> list[dict[str, Any]]:
        """A slice. One that overtakes chat's step gives way and is asked for again; for a while, since a request may
        be under way without ever being computed."""
        patience = time.monotonic() + PATIENCE
        while True:
            statuses = await self._call(
                "drawing_advance", name, layers, lambda: time.monotonic() < patience and self._chatting()
            )
            if not statuses[0].get("gave_way"):
                return statuses

    async def _preview(self, name: str) -> bytes | None:
        return (await self._call("drawing_preview", name))[0].get("pixels")

    async def _end(self, name: str) -> None:
        """Free the drawing on all ranks, even while this task is being cancelled."""
        with contextlib.suppress(Exception):
            await _uncancelled(self._gated("drawing_end", name))

    async def _call(self, method: str, *args: Any) -> list[dict[str, Any]]:
        """One worker call at the gate; statuses of all ranks. Raises DrawingFailed if any rank failed."""
        statuses = await self._gated(method, *args)
        failed = [(rank, s) for rank, s in enumerate(statuses) if s["state"] == "failed"]
        if failed:
            # A rank without memory tells more than those that only heard of it.
            rank, status = min(failed, key=lambda f: f[1]["code"] != "drawing-memory")
            logger.warning("ascend_vl: drawing failed on rank %d of %d: %s", rank, len(statuses), status["why"])
            raise DrawingFailed(status["code"], rank)
        return statuses

    async def _gated(self, method: str, *args: Any) -> list[dict[str, Any]]:
        async with self._gate:
            # What may have changed while waiting at the gate is asked now.
            now = tuple(arg() if callable(arg) else arg for arg in args)
            return await _uncancelled(self._out(method, now))

    async def _out(self, method: str, args: tuple[Any, ...]) -> list[dict[str, Any]]:
        call = asyncio.ensure_future(self._rpc(method, args))
        done, _ = await asyncio.wait({call}, timeout=self.settings.stuck_seconds)
        if not done:
            # No deadline ends the call: its late answer would be taken for the next call's.
            self.stuck = True
            logger.critical("ascend_vl: %s is out for over %.0f s; engine stuck", method, self.settings.stuck_seconds)
            self._on_stuck()
        return await call

    @contextlib.asynccontextmanager
    async def _place(self, name: str, needed: int) -> AsyncIterator[None]:
        """Wait in the queue, first come first served, until there is a place and memory.

        Coming and going never awaits, so that a client that leaves at any moment leaves nothing behind.
        """
        ticket = _Ticket(name, needed, asyncio.get_running_loop().create_future())
        self._queue.append(ticket)
        self._admit()
        try:
            await ticket.admitted
            yield
        finally:
            if ticket in self._queue:
                self._queue.remove(ticket)
            self._active.pop(name, None)
            self._admit()

    def _admit(self) -> None:
        while self._queue and self._fits(self._queue[0].needed):
            ticket = self._queue.popleft()
            self._active[ticket.name] = ticket.needed
            if not ticket.admitted.done():
                ticket.admitted.set_result(None)
        metrics.ACTIVE.set(len(self._active))
        metrics.WAITING.set(len(self._queue))

    def _fits(self, needed: int) -> bool:
        taken = sum(self._active.values())
        return not self._active or (len(self._active) < self.settings.active and taken + needed <= self._limit)


@dataclass(eq=False)
class _Ticket:
    name: str
    needed: int
    admitted: "asyncio.Future[None]"


class _Pace:
    """How many layers make a slice of the wanted length, learnt phase by phase; a phase begins with one layer."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._layer: dict[str, float] = {}

    def layers(self, phase: str) -> int:
        cost = self._layer.get(phase)
        return 1 if cost is None else max(1, int(self._seconds / max(cost, 1e-6)))

    def learn(self, phase: str, status: dict[str, Any]) -> None:
        if status.get("units"):
            cost = status["seconds"] / status["units"]
            # Up at once, down slowly: a slice that is too long is chat's delay.
            before = self._layer.get(phase)
            self._layer[phase] = cost if before is None or cost > before else 0.5 * (before + cost)


class Busy(Refusal):
    """429, with the seconds after which to try again."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(
            "drawing-busy",
            Text("Too many drawings are waiting.", "排队的绘图过多。"),
            Text("The lane for drawings is full.", "绘图队列已满。"),
            Text(f"Try again in {retry_after} s.", f"请在 {retry_after} 秒后重试。"),
            status=429,
        )
        self.retry_after = retry_after


class _Failure(NamedTuple):
    code: str
    what: Text
    why: Text
    do: Text
    status: int = 500


FAILURES = (
    _Failure(
        "drawing-memory",
        Text("The picture could not be drawn.", "绘图失败。"),
        Text("Rank {rank} ran out of memory.", "第 {rank} 个进程内存不足。"),
        Text("Ask for a smaller picture, or try again later.", "请缩小尺寸，或稍后重试。"),
        503,
    ),
    _Failure(
        "drawing-not-finite",
        Text("The picture could not be drawn.", "绘图失败。"),
        Text("The network's output is not finite in this dtype.", "该精度下网络输出不是有限值。"),
        Text("Serve the model in bfloat16 or float32.", "请以 bfloat16 或 float32 提供服务。"),
    ),
    _Failure(
        "drawing-failed",
        Text("The picture could not be drawn.", "绘图失败。"),
        Text("Rank {rank} reported an error.", "第 {rank} 个进程报告了错误。"),
        Text("The server's log has the details.", "详情见服务日志。"),
    ),
)


class DrawingFailed(Refusal):
    """A failure in the workers; the log has the details."""

    def __init__(self, code: str, rank: int) -> None:
        failure = next((failure for failure in FAILURES if failure.code == code), FAILURES[-1])
        why = Text(failure.why.en.format(rank=rank), failure.why.zh.format(rank=rank))
        super().__init__(failure.code, failure.what, why, failure.do, status=failure.status)


def _stuck() -> Refusal:
    return Refusal(
        "drawing-stuck",
        Text("The engine does not answer.", "引擎没有响应。"),
        Text("A slice of a drawing has been out for too long.", "某个绘图片段执行时间过长。"),
        Text("The server is restarting; try again later.", "服务正在重启，请稍后重试。"),
        status=503,
    )


def _timed_out(seconds: float) -> Refusal:
    return Refusal(
        "drawing-timeout",
        Text("The drawing took too long.", "绘图超时。"),
        Text(f"The limit is {seconds:.0f} s.", f"时限为 {seconds:.0f} 秒。"),
        Text("Ask for fewer steps or a smaller picture.", "请减少步数或缩小尺寸。"),
        status=504,
    )


async def _uncancelled(work: Awaitable[Any]) -> Any:
    """Finish `work` even if this task is cancelled meanwhile; the cancellation goes on afterwards."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        with contextlib.suppress(Exception):
            await task
        raise
