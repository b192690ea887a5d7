"""Which registered adaptation heals what was found: tried one by one, each in an engine of its own, never assumed."""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from ascend_vl.adaptations import override, registry

# Which adaptations can heal what; tried in this order.
CURES = {
    "vision attention": ("vision-lengths", "vision-operator", "vision-exact-kernel", "vision-head-width"),
    "rotary": ("rotary-dtype", "rotary-exact"),
    "embeddings": ("embedding-merge",),
}
# States in which forcing an adaptation on can change nothing: it is in force, or this stack does it by itself.
NOT_TRIED = ("handled-upstream", "active", "forced", "unprobed")


def untried(kind: str, states: Mapping[str, str]) -> list[str]:
    """Adaptations that may heal an operator of this kind, given how each stands in the engine."""
    known = registry.ids()
    return [name for name in CURES.get(kind, ()) if name in known and states.get(name) not in NOT_TRIED]


@contextlib.contextmanager
def forced(name: str) -> Iterator[None]:
    """Engines started within have this adaptation forced on, whatever the user said of it."""
    before = os.environ.get(override.VARIABLE)
    others = [part.strip() for part in (before or "").split(",") if part.strip() and part.strip()[1:] != name]
    os.environ[override.VARIABLE] = ",".join([*others, f"+{name}"])
    try:
        yield
    finally:
        if before is None:
            del os.environ[override.VARIABLE]
        else:
            os.environ[override.VARIABLE] = before


def keep_reference(found: Path, trial: Path) -> None:
    """Put the reference's tensors of a place where a trial looks for them."""
    trial.parent.mkdir(parents=True, exist_ok=True)
    for suffix in (".golden.npy", ".dtype.npy"):
        shutil.copy(f"{found}{suffix}", f"{trial}{suffix}")


def first(names: list[str], heals: Callable[[str], bool]) -> str | None:
    """The first adaptation that heals."""
    for name in names:
        with forced(name):
            if heals(name):
                return name
    return None
