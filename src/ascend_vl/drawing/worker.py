"""Worker methods of drawing, mixed into vLLM's worker. Called by name through `collective_rpc`, on every rank alike.

Rules: arguments and results are plain values and bytes. Nothing raises: a failure is a status. Allocation happens in
`drawing_begin`, where no collective runs, so that a rank without memory leaves no other rank waiting. Every method
waits for its device work before it answers, or an asynchronous device would queue slices without bound.
"""

import contextlib
import functools
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ascend_vl.checkpoint.shapes import vision_shape
from ascend_vl.drawing import dtype_range, workspace
from ascend_vl.drawing.budget import Shape, request_bytes, session_bytes, slice_bytes, tower_bytes, workspace_bytes
from ascend_vl.drawing.forward import Decoder
from ascend_vl.drawing.job import Job, from_wire
from ascend_vl.drawing.ranks import Ranks
from ascend_vl.drawing.session import NotFinite, Session, wait_for
from ascend_vl.drawing.trace import to_npz
from ascend_vl.serve import replaced

Status = dict[str, Any]


class ChatSteps:
    """Counts the steps in which this worker's model computes tokens, from the first drawing on."""

    def __init__(self, runner: Any) -> None:
        self.count = 0
        original = getattr(runner, "execute_model", None)
        self.counts = original is not None
        if original is None:
            return

        @functools.wraps(original)
        def counted(scheduled: Any, *given: Any, **named: Any) -> Any:
            self.count += bool(getattr(scheduled, "total_num_scheduled_tokens", 1))
            return original(scheduled, *given, **named)

        runner.execute_model = counted
        replaced.record(
            f"{type(runner).__module__}.{type(runner).__name__}.execute_model",
            original=replaced.place(original),
            ours=replaced.place(ChatSteps),
            why="counts chat's steps, so that no token waits for two slices of drawings",
        )


class DrawingState:
    """What drawing keeps in a worker: the decoder over its model, the sessions, the memory it may use."""

    def __init__(self, worker: Any) -> None:
        self.model = worker.model_runner.get_model()
        self.device: torch.device = worker.device
        # May shrink the residual stream, which the decoder must know.
        self.range = dtype_range.found(self.model)
        self.ranks = Ranks()
        self.decoder = Decoder(self.model, self.device, self.ranks)
        self.sessions: dict[str, Session] = {}
        self.chat = ChatSteps(worker.model_runner)
        self.chat_at_last_slice = -1
        config = self.model.config.to_dict()
        self.shape = Shape.of(config, self.decoder.dtype.itemsize, self.ranks.size)
        self.vision = vision_shape(config)
        self.limit = workspace_bytes(config, self.decoder.dtype.itemsize, self.ranks.size)

    def begin(self, name: str, job: Job, live: Sequence[str]) -> None:
        """Make the session. Raises MemoryError or torch's out of memory error."""
        for gone in set(self.sessions) - set(live):
            self.forget(gone)
        prefixes = [b.prefix for b in job.branches]
        held = sum(self._held(s.job) for s in self.sessions.values())
        needed = request_bytes(self.shape, job.target_tokens, job.reference_tokens, prefixes)
        if held + needed > self.limit:
            raise MemoryError(f"needs {needed} bytes beside {held} in use; the workspace is {self.limit}")
        self.sessions[name] = Session(job, self.model, self.decoder, self.device)

    def forget(self, name: str) -> None:
        """Drop a session and free what it holds, if there is one."""
        session = self.sessions.pop(name, None)
        if session is not None:
            session.close()

    def _held(self, job: Job) -> int:
        return session_bytes(self.shape, job.target_tokens, job.reference_tokens, [b.prefix for b in job.branches])

    def rehearse(self, session: Session) -> None:
        """Allocate once, and give back, what a slice of this drawing needs at most. Raises out of memory errors."""
        job = session.job
        together = max(len(group) for group in session.groups)
        rows = job.denoised_tokens * together
        keys = (job.denoised_tokens + max(b.prefix for b in job.branches)) * together
        needed = slice_bytes(self.shape, rows, keys)
        if session.phase == "see" and job.conditions is not None:
            # Its all-reduces are inside vLLM's modules: what fails there on one rank leaves the others waiting.
            tokens = int(job.conditions.grid_thw.prod(axis=1).max()) // self.vision.merge**2
            needed = max(needed, self._tower_bytes(tokens))
        torch.empty(needed, dtype=torch.uint8, device=self.device)

    def _tower_bytes(self, tokens: int) -> int:
        size, npu = self.decoder.dtype.itemsize, self.device.type == "npu"
        return tower_bytes(self.vision, self.shape.hidden, tokens, size, self.ranks.size, npu)

    def advance(self, session: Session, layers: int) -> int:
        """A slice; the layers it ran. Raises the failure of this rank, or RuntimeError when another rank failed."""
        self.ranks.failure = None
        self.ranks.local(lambda: self.rehearse(session))
        if not self.ranks.agree(self.ranks.failure is None):
            self.ranks.report()
            raise RuntimeError("another rank has no memory for this slice")
        done = session.advance(layers)
        self.ranks.report()
        return done


class DrawingWorker:
    """Mixin for vLLM's `--worker-extension-cls`."""

    def drawing_open(self) -> Status:
        """After the KV cache is made: release the workspace and describe this rank."""
        try:
            state = self._drawing()
            released = workspace.release(state.model)
        except Exception as error:
            return _failed(error)
        return {
            "state": "open",
            "released": released,
            "limit": state.limit,
            "attention": state.decoder.attend.name,
            "dtype": str(state.decoder.dtype).removeprefix("torch."),
            "device": state.device.type,
            "ranks": state.ranks.size,
            "layers": len(state.decoder.layers),
            "range": state.range,
        }

    def drawing_begin(self, name: str, wire: dict[str, Any], live: list[str]) -> Status:
        """Validate and allocate a drawing; no collective. Drawings that `live` does not name are dropped."""
        try:
            state = self._drawing()
            state.begin(name, from_wire(wire), live)
            wait_for(state.device)
            return _status(state.sessions[name])
        except Exception as error:
            self._forget(name)
            return self._failed(error)

    def drawing_advance(self, name: str, layers: int, chat: bool = False) -> Status:
        """A slice of up to `layers` layers, ending early at the end of a step. A failed drawing is dropped.

        With `chat` under way nothing is done (`gave_way`) until the model has made a step since the last slice.
        """
        started = time.perf_counter()
        try:
            state = self._drawing()
            session = state.sessions[name]
            if chat and state.chat.counts and state.chat.count == state.chat_at_last_slice:
                return {**_status(session), "units": 0, "seconds": 0.0, "gave_way": True}
            state.chat_at_last_slice = state.chat.count
            units = state.advance(session, layers)
            wait_for(state.device)
            return {**_status(session), "units": units, "seconds": time.perf_counter() - started}
        except Exception as error:
            self._forget(name)
            return self._failed(error)

    def drawing_preview(self, name: str) -> Status:
        """The last predicted clean picture as raw RGB bytes, from the first rank."""
        return self._look(name, lambda session: session.preview_picture())

    def drawing_result(self, name: str) -> Status:
        """The picture as raw RGB bytes, from the first rank; with a trace, also its .npz. The drawing is dropped."""
        out = self._look(name, lambda session: session.picture(), traced=True)
        self._forget(name)
        return out

    def drawing_end(self, name: str) -> Status:
        """Drop a drawing, if there is one."""
        self._forget(name)
        return {"state": "ended", "sessions": len(self._drawing().sessions)}

    def drawing_status(self) -> Status:
        """Names of the sessions and bytes they hold."""
        state = self._drawing()
        return {"state": "open", "sessions": sorted(state.sessions), "allocated": _allocated(state.device)}

    def _drawing(self) -> DrawingState:
        state = self.__dict__.get("_drawing_state")
        if state is None:
            state = self.__dict__["_drawing_state"] = DrawingState(self)
        return state

    def _failed(self, error: BaseException) -> Status:
        """The status of a failure, after whatever was queued before it; a device that is lost cannot be waited for."""
        state = self.__dict__.get("_drawing_state")
        if state is not None:
            with contextlib.suppress(Exception):
                wait_for(state.device)
        return _failed(error)

    def _forget(self, name: str) -> None:
        state = self.__dict__.get("_drawing_state")
        if state is not None:
            state.forget(name)

    def _look(self, name: str, picture: Any, traced: bool = False) -> Status:
        try:
            state = self._drawing()
            session = state.sessions[name]
            out = _status(session)
            if state.ranks.first:
                pixels = picture(session)
                out["pixels"] = None if pixels is None else np.ascontiguousarray(pixels).tobytes()
                if traced and session.arrays:
                    out["trace"] = to_npz(session.arrays)
            wait_for(state.device)
            return out
        except Exception as error:
            return self._failed(error)


def _status(session: Session) -> Status:
    return {
        "state": "done" if session.phase == "done" else "running",
        "phase": session.phase,
        "step": session.steps_done,
        "steps": len(session.scheduler.timesteps),
    }


def _failed(error: BaseException) -> Status:
    memory = isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "out of memory" in str(error).lower()
    code = "drawing-memory" if memory else "drawing-not-finite" if isinstance(error, NotFinite) else "drawing-failed"
    return {"state": "failed", "code": code, "why": f"{type(error).__name__}: {error}"[:2000]}


def _allocated(device: torch.device) -> int:
    with contextlib.suppress(AttributeError):
        return int(getattr(torch, device.type).memory_allocated(device))
    return 0
