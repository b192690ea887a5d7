"""Workers that pretend: they keep sessions as the real ones do, and draw flat grey."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ascend_vl.drawing.job import Job
from ascend_vl.drawing.recipes import DrawingConfig
from ascend_vl.drawing.sequence import Branch


def job(width: int = 64, height: int = 64, steps: int = 3, seed: int = 0) -> Job:
    """A job that only fake workers can draw."""
    count = (width // 32) * (height // 32)
    branch = Branch(
        np.arange(5, dtype=np.int64),
        np.zeros((3, 5 + count), dtype=np.int64),
        np.zeros(5 + count, dtype=np.int64),
        np.zeros(5 + count, dtype=bool),
    )
    recipe = DrawingConfig().recipe("dev", 0, steps=steps)
    return Job(width, height, seed, recipe, 32, 0.001, (branch,))


@dataclass
class FakeWorkers:
    """`rpc` answers as `ranks` workers do; `fail(method, rank, name)` may give a failed status; `hold` delays calls."""

    ranks: int = 1
    slices_a_step: int = 2
    fail: Callable[[str, int, str], dict[str, Any] | None] = lambda method, rank, name: None
    hold: Callable[[str], Any] | None = None
    sessions: dict[str, dict[str, int]] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    in_flight: int = 0
    give_way: int = 0
    most_in_flight: int = 0

    async def rpc(self, method: str, args: tuple[Any, ...]) -> list[dict[str, Any]]:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            name = args[0] if args else ""
            self.calls.append((method, name))
            await (self.hold(method) if self.hold else asyncio.sleep(0))
            failed = [self.fail(method, rank, name) for rank in range(self.ranks)]
            if any(failed):
                return [f or {"state": "running", "phase": "draw", "step": 0, "steps": 1} for f in failed]
            return [getattr(self, method)(*args)] * self.ranks
        finally:
            self.in_flight -= 1

    def drawing_open(self) -> dict[str, Any]:
        return {
            "state": "open",
            "limit": 2**40,
            "dtype": "float32",
            "ranks": self.ranks,
            "released": 0,
            "attention": "torch",
        }

    def drawing_begin(self, name: str, wire: dict[str, Any], live: list[str]) -> dict[str, Any]:
        for gone in set(self.sessions) - set(live):
            del self.sessions[gone]
        steps = wire["recipe"]["steps"]
        size = wire["width"] * wire["height"] * 3
        self.sessions[name] = {"slices": 0, "steps": steps, "bytes": size}
        return self._status(name)

    def drawing_advance(self, name: str, layers: int, chat: bool = False) -> dict[str, Any]:
        if chat and self.give_way > 0:
            self.give_way -= 1
            return {**self._status(name), "units": 0, "seconds": 0.0, "gave_way": True}
        self.sessions[name]["slices"] += 1
        return {**self._status(name), "units": layers, "seconds": 0.001 * layers}

    def drawing_preview(self, name: str) -> dict[str, Any]:
        return {**self._status(name), "pixels": bytes([60]) * self.sessions[name]["bytes"]}

    def drawing_result(self, name: str) -> dict[str, Any]:
        out = {**self._status(name), "pixels": bytes([120]) * self.sessions[name]["bytes"], "trace": b"npz"}
        del self.sessions[name]
        return out

    def drawing_status(self) -> dict[str, Any]:
        return {"state": "open", "sessions": sorted(self.sessions), "allocated": 0}

    def drawing_end(self, name: str) -> dict[str, Any]:
        self.sessions.pop(name, None)
        return {"state": "ended"}

    def _status(self, name: str) -> dict[str, Any]:
        session = self.sessions[name]
        step = session["slices"] // self.slices_a_step
        done = step >= session["steps"]
        return {"state": "done" if done else "running", "phase": "draw", "step": step, "steps": session["steps"]}
