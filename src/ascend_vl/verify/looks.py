"""One place inside the model looked at on both sides, and how far each side lies from float64 there.

A look is one request: the prompt alone, the prompt with the base's whole answer behind it, or a decode step of it.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ascend_vl.verify import remote, tolerances
from ascend_vl.verify.cases import Case
from ascend_vl.verify.reference_session import ReferenceSession


@dataclass(frozen=True)
class Look:
    """What is run to look at a place.

    Nothing set: the prompt. `text` and `token_ids`: the prompt and this answer, read at once. `step`: the answer is
    generated up to that position, and its last decode step is looked at; `token_ids` are those before it.
    """

    text: str = ""
    token_ids: tuple[int, ...] = ()
    step: int | None = None

    @property
    def last(self) -> str:
        """The workers' argument `last_pass`."""
        return "last" if self.step is not None else ""

    def run(self, server: remote.Server, case: Case) -> None:
        """Have the engine do it, with no cache able to answer for any part of it."""
        if self.step is not None:
            wanted = Case(case.id, case.prompt, case.images, self.step + 1)
            server.ask(wanted, fresh_images=True, fresh_prompt=True)
        else:
            server.prefill(case, self.text)


def errors(
    look: Look, server: remote.Server, reference: ReferenceSession | None, case: Case, point: str, place: Path
) -> list[float | None]:
    """[reference, engine] errors at a place; the tensors stay at `place` (.npy, .dtype.npy, .golden.npy).

    Without a `reference` its tensors must be there already.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    server.rpc("ascend_vl_point_start", point, look.last)
    look.run(server, case)
    server.rpc("ascend_vl_point_take", f"{place.resolve()}.npy")
    if reference:
        reference.point(point, place.resolve(), list(look.token_ids), last=look.step is not None)
    return errors_at(place)


def errors_at(place: Path) -> list[float | None]:
    """[reference, engine]: relative L2 distance from golden of what `place` keeps; None: other shape or not finite."""
    ours, exact, theirs = (np.load(f"{place}{suffix}") for suffix in (".npy", ".golden.npy", ".dtype.npy"))
    norm = float(np.linalg.norm(exact)) or 1.0
    found: list[float | None] = []
    for side in (theirs, ours):
        if side.shape[0] < exact.shape[0] or side.shape[-1] < exact.shape[-1]:
            found.append(None)
            continue
        # Engines pad rows for their kernels and vocabularies for their splits.
        value = float(np.linalg.norm(side[: exact.shape[0], : exact.shape[-1]] - exact)) / norm
        found.append(value if math.isfinite(value) else None)
    return found


def judged(point: str, found: list[float | None], dtype: str) -> dict[str, Any]:
    """The step of a search: both errors, the limit, and whether the candidate strays: more than twice the reference's
    error and a floor; anything not finite does.
    """
    reference, engine = found
    step: dict[str, Any] = {"point": point, "reference_error": reference, "engine_error": engine}
    if reference is None or engine is None:
        return {**step, "strays": True}
    limit = 2 * reference + tolerances.floor(dtype)
    return {**step, "limit": limit, "strays": engine > limit}
