"""The base dependencies install from wheels everywhere, and move nothing that a vllm-ascend container came with.

Needs a package index; where none is reached the same is asserted of the resolutions recorded in resolutions.json, and
the end of the test run says so.
"""

import re
from collections.abc import Callable

import pytest
from packaging.requirements import Requirement
from packaging.tags import compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename
from resolver import (
    CONTAINERS,
    GLIBC,
    PROTECTED,
    TARGETS,
    NoIndexError,
    Target,
    base_dependencies,
    normalised,
    origins,
    pins,
    recorded,
    resolve_all,
)

Resolution = dict[str, dict[str, str]]


@pytest.fixture(scope="module")
def resolution() -> Callable[[Target], Resolution]:
    """Each target as the index resolves it now; as recorded where no index was reached."""
    outcomes = resolve_all(TARGETS)

    def find(target: Target) -> Resolution:
        outcome = outcomes[target]
        if isinstance(outcome, NoIndexError):
            origins[str(target)] = "NOT made now (no package index reached); the recorded ones were checked"
            return recorded()[str(target)]
        if isinstance(outcome, Exception):
            raise outcome
        origins[str(target)] = "made now with the package index"
        return outcome

    return find


def wheel_tags(target: Target) -> set:
    """Every tag that pip accepts for the target."""
    version = tuple(map(int, target.python.split(".")))
    platforms = [f"{glibc}_{target.architecture}" for glibc in GLIBC]
    interpreter = f"cp{target.python.replace('.', '')}"
    return {*cpython_tags(version, platforms=platforms), *compatible_tags(version, interpreter, platforms)}


def check(found: Resolution, target: Target) -> None:
    """Every base dependency within its bounds, everything a wheel for the target, every pin kept."""
    for line in base_dependencies():
        requirement = Requirement(line)
        version = found[normalised(requirement.name)]["version"]
        assert requirement.specifier.contains(version, prereleases=True), f"{line}: {version}"
    for name, entry in found.items():
        assert entry["wheel"].endswith(".whl"), f"{name}: {entry['wheel']}"
        assert parse_wheel_filename(entry["wheel"])[3] & wheel_tags(target), f"{name}: {entry['wheel']}"
    kept = pins(target.container) if target.container else {}
    moved = {name: (kept[name], found[name]["version"]) for name in kept if name in found}
    assert all(before == after for before, after in moved.values()), moved


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_wheels_exist_and_nothing_is_moved(target, resolution):
    found = resolution(target)
    check(found, target)
    heavy = {"torch", "transformers", "vllm", "vllm-ascend", "torch-npu"} & set(found)
    assert heavy == set(), "a base dependency pulls in an engine"


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_the_record_fits_the_bounds_of_today(target):
    """Fails when pyproject.toml changed and resolver.py was not run again."""
    check(recorded()[str(target)], target)


@pytest.mark.parametrize("path", sorted(CONTAINERS.glob("*.txt")), ids=lambda path: path.stem)
def test_a_container_is_possible(path):
    """The pins obey the published metadata that the file's comment quotes."""
    kept = pins(path.stem)
    assert set(PROTECTED) <= set(kept)
    quoted = [line for line in path.read_text().splitlines() if line.startswith("#")]
    ranges = re.findall(r"\b([A-Za-z_]+)((?:[<>=!]=?[\d.]+(?:,|\b))+)", " ".join(quoted))
    assert len(ranges) >= 5
    for name, bounds in ranges:
        assert Requirement(f"{name}{bounds.rstrip(',')}").specifier.contains(kept[normalised(name)]), (name, bounds)


def test_a_moved_package_is_noticed():
    """The check itself: a resolution that lifts numpy out of the container's version fails it."""
    target = next(target for target in TARGETS if target.container)
    found = {name: dict(entry) for name, entry in recorded()[str(target)].items()}
    found["numpy"]["version"] = "2.3.5"
    with pytest.raises(AssertionError, match="numpy"):
        check(found, target)


def test_a_wheel_of_another_architecture_is_noticed():
    target = next(target for target in TARGETS if target.architecture == "aarch64")
    found = recorded()[str(Target(target.container, "x86_64", target.python))]
    with pytest.raises(AssertionError, match="x86_64"):
        check(found, target)
