"""Which registered adaptation heals what was found: tried one by one, each in an engine of its own, never assumed."""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from ascend_vl.adaptations import override, registry
from ascend_vl.adaptations.record import Facts

# Which adaptations can heal what; tried in this order: what changes least comes first, because another operator heals
# what only the exact kernel, or true lengths, were needed for.
CURES = {
    "vision attention": ("vision-lengths", "vision-exact-kernel", "vision-operator", "vision-head-width"),
    "rotary": ("rotary-dtype", "rotary-exact"),
    "embeddings": ("embedding-merge",),
}
# States in which forcing an adaptation on can change nothing: it is in force, or this stack does it by itself.
NOT_TRIED = ("handled-upstream", "active", "forced", "unprobed")


def untried(kind: str, states: Mapping[str, str], facts: Facts) -> list[str]:
    """Adaptations that may heal an operator of this kind, given how each stands in the engine, on this machine."""
    may = (name for name in CURES.get(kind, ()) if states.get(name) not in NOT_TRIED)
    return [name for name in may if registry.by_id(name).applies(facts).verdict != "no"]


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
