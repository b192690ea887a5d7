"""Two tensor-parallel workers in two processes, called together as vLLM's `mp` executor calls its own."""

import contextlib
import multiprocessing
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SECONDS = 240


class Pair:
    """`call(method, *args)` gives the statuses of both ranks. Raises TimeoutError when a rank does not answer."""

    def __init__(self, pipes: list[Any]) -> None:
        self._pipes = pipes

    def call(self, method: str, *args: Any) -> list[Any]:
        for pipe in self._pipes:
            pipe.send((method, args))
        return [self._answer(pipe) for pipe in self._pipes]

    def _answer(self, pipe: Any) -> Any:
        if not pipe.poll(SECONDS):
            raise TimeoutError("a rank does not answer")
        answer = pipe.recv()
        if isinstance(answer, str):
            raise RuntimeError(answer)
        return answer


@contextlib.contextmanager
def pair(directory: Path) -> Iterator[Pair]:
    """Both workers, gone at the end."""
    import bare

    port = bare.free_port()
    context = multiprocessing.get_context("spawn")
    ends = [context.Pipe() for _ in range(2)]
    processes = [
        context.Process(target=_serve, args=(str(directory), rank, port, ends[rank][1]), daemon=True)
        for rank in range(2)
    ]
    for process in processes:
        process.start()
    made = Pair([ours for ours, _ in ends])
    try:
        made._answer(ends[0][0])
        made._answer(ends[1][0])
        yield made
    finally:
        for process in processes:
            process.kill()
            process.join()


def _serve(directory: str, rank: int, port: int, pipe: Any) -> None:
    sys.path.insert(0, str(Path(__file__).parent))
    import bare

    try:
        worker = bare.load(Path(directory), rank=rank, size=2, port=port)
        pipe.send({"state": "loaded"})
        while True:
            method, args = pipe.recv()
            pipe.send(_break(worker, rank, *args) if method == "break" else getattr(worker, method)(*args))
    except EOFError:
        return
    except BaseException:
        pipe.send(traceback.format_exc())


def _break(worker: Any, rank: int, at: int, where: str, count: int) -> dict[str, Any]:
    """Make rank `at` run out of memory, once, at the `count`-th call of a place; `where` nowhere: mend everything."""
    import torch

    from ascend_vl.drawing import session
    from ascend_vl.drawing import worker as workers
    from ascend_vl.drawing.forward import Decoder

    places: dict[str, tuple[Any, str]] = {
        "begin": (workers.DrawingState, "begin"),
        "rehearse": (workers.DrawingState, "rehearse"),
        "attention": (Decoder, "_attended"),
        "normed": (Decoder, "_normed"),
        "step": (session.Session, "_finish_step"),
        "entering": (Decoder, "entering"),
        "rows": (session.Session, "_rows"),
        "picture": (session.Session, "_put_picture"),
        "prediction": (session, "clean_patches"),
        "mlp": (type(worker.model_runner.get_model().language_model.model.layers[0].mlp), "forward"),
    }
    if rank != at:
        return {"state": "whole"}
    owner, name = places[where]
    real = getattr(owner, name)
    left = [count]

    def broken(*args: Any, **named: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            setattr(owner, name, real)
            raise torch.OutOfMemoryError("pretended")
        return real(*args, **named)

    setattr(owner, name, broken)
    return {"state": "broken"}
