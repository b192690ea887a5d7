"""Found first on PYTHONPATH by a server under test: drawings with certain seeds fail in its workers."""

import time
from typing import Any

from ascend_vl.serve import imports

STUCK = 699
# seed of a drawing -> (what fails on rank 1, at which call of it)
FAULTS = {601: ("begin", 1), 602: ("rehearse", 1), 603: ("rehearse", 9), 604: ("_finish_step", 2)}


def break_workers(workers: Any) -> None:
    """Rank 1 runs out of memory where memory is taken; a slice with seed STUCK never ends."""
    import torch

    state, session = workers.DrawingState, workers.Session
    calls: dict[tuple[int, str], int] = {}

    def fail_in(owner: Any, place: str, seed_of: Any) -> None:
        real = getattr(owner, place)

        def faulty(self: Any, *args: Any) -> Any:
            seed = seed_of(self, *args)
            where, count = FAULTS.get(seed, ("", 0))
            ranks = getattr(self, "ranks", None) or self.decoder.ranks
            if where == place and not ranks.first:
                calls[seed, place] = calls.get((seed, place), 0) + 1
                if calls[seed, place] == count:
                    raise torch.OutOfMemoryError("pretended")
            return real(self, *args)

        setattr(owner, place, faulty)

    advance = state.advance

    def stuck(self: Any, session: Any, layers: int) -> int:
        if session.job.seed == STUCK:
            time.sleep(3600)
        return advance(self, session, layers)

    state.advance = stuck
    fail_in(state, "begin", lambda self, name, job, live: job.seed)
    fail_in(state, "rehearse", lambda self, session: session.job.seed)
    fail_in(session, "_finish_step", lambda self, *args: self.job.seed)


imports.when_imported("ascend_vl.drawing.worker", break_workers)
