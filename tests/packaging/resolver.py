"""Resolve the base dependencies as pip would for another architecture and Python, without installing anything.

`python tests/packaging/resolver.py` records the resolutions that the tests fall back to without a package index.
"""

import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
CONTAINERS = HERE / "containers"
RECORD = HERE / "resolutions.json"
PYPROJECT = HERE.parent.parent / "pyproject.toml"
# manylinux_2_28 is what the images' distributions (openEuler 22.03, Ubuntu 22.04) can run.
GLIBC = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_26", "manylinux_2_24", "manylinux_2_17", "manylinux2014")
# What a container came with and must keep.
PROTECTED = ("numpy", "torch", "transformers", "fastapi", "pydantic")
_NO_NETWORK = ("NewConnectionError", "NameResolutionError", "ConnectTimeoutError", "Network is unreachable")


@dataclass(frozen=True)
class Target:
    """One machine: `container` is a file of pins in containers/, or None for an empty environment."""

    container: str | None
    architecture: str
    python: str

    def __str__(self) -> str:
        return f"{self.container or 'empty'}-{self.architecture}-py{self.python}"


ARCHITECTURES = ("aarch64", "x86_64")
TARGETS = [Target(None, architecture, python) for python in ("3.10", "3.11", "3.12") for architecture in ARCHITECTURES]
TARGETS += [
    Target(path.stem, architecture, "3.11")
    for path in sorted(CONTAINERS.glob("*.txt"))
    for architecture in ARCHITECTURES
]


# Where the resolution of each target came from, for the end of a test run.
origins: dict[str, str] = {}


class NoIndexError(Exception):
    """No package index could be reached."""


class NoResolutionError(Exception):
    """The dependencies contradict each other or have no wheel; carries pip's words."""


def base_dependencies() -> list[str]:
    """`project.dependencies` of pyproject.toml."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib.loads(PYPROJECT.read_text())["project"]["dependencies"]


def pins(container: str) -> dict[str, str]:
    """Package to version of a container's file."""
    lines = (CONTAINERS / f"{container}.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def resolve(target: Target) -> dict[str, dict[str, str]]:
    """Package (normalised) to {"version", "wheel"}. Raises NoIndexError, NoResolutionError."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        command += ["--report", str(report), "--target", f"{scratch}/nowhere", "--only-binary=:all:"]
        command += ["--disable-pip-version-check", "--retries", "1", "--timeout", "20"]
        command += ["--implementation", "cp", "--python-version", target.python]
        for glibc in GLIBC:
            command += ["--platform", f"{glibc}_{target.architecture}"]
        if target.container:
            command += ["--constraint", str(CONTAINERS / f"{target.container}.txt")]
        done = subprocess.run([*command, *base_dependencies()], capture_output=True, text=True)
        if done.returncode:
            if any(word in done.stderr for word in _NO_NETWORK) and "ResolutionImpossible" not in done.stderr:
                raise NoIndexError(done.stderr)
            raise NoResolutionError(done.stderr)
        installed = json.loads(report.read_text())["install"]
    return {
        normalised(item["metadata"]["name"]): {
            "version": item["metadata"]["version"],
            "wheel": item["download_info"]["url"].rpartition("/")[2],
        }
        for item in installed
    }


def index_reached() -> bool:
    """Whether pip finds a pure Python package, as it is set up here."""
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--no-deps", "--ignore-installed"]
        command += [
            "--target",
            f"{scratch}/nowhere",
            "--disable-pip-version-check",
            "--retries",
            "1",
            "--timeout",
            "20",
        ]
        return subprocess.run([*command, "typer"], capture_output=True).returncode == 0


def resolve_all(targets: list[Target]) -> dict[Target, dict[str, dict[str, str]] | Exception]:
    """Every target, three at a time; a target's error stands in its place."""
    if not index_reached():
        return dict.fromkeys(targets, NoIndexError("pip finds nothing"))

    def attempt(target: Target) -> dict[str, dict[str, str]] | Exception:
        try:
            return resolve(target)
        except (NoIndexError, NoResolutionError) as error:
            return error

    with ThreadPoolExecutor(3) as pool:
        return dict(zip(targets, pool.map(attempt, targets), strict=True))


def normalised(name: str) -> str:
    """The name as PEP 503 writes it."""
    return name.lower().replace("_", "-").replace(".", "-")


def recorded() -> dict[str, dict[str, dict[str, str]]]:
    """The resolutions kept in the repository, by target."""
    return json.loads(RECORD.read_text())


if __name__ == "__main__":
    found = {}
    for target, outcome in resolve_all(TARGETS).items():
        if isinstance(outcome, Exception):
            raise outcome
        found[str(target)] = outcome
    RECORD.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
