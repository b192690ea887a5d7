"""A directory that installs this package without a network: wheels, rules, checksums, licences, Containerfile."""

import base64
import csv
import hashlib
import io
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from email.parser import HeaderParser
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from ascend_vl import __version__
from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text
from ascend_vl.rules.verdict import best_release, image_of

# pip's platform tags, most general last, by the name `uname -m` prints.
PLATFORMS = {
    "aarch64": ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64"),
    "x86_64": ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"),
}
PYTHONS = ("3.10", "3.11", "3.12")
SUMS = "SHA256SUMS"
PACKAGES = ("ascend_vl", "npu_emulator")


@dataclass(frozen=True)
class Component:
    """One wheel: what it is, under which licence, for which machine ("any" for pure Python), its file and hash."""

    name: str
    version: str
    licence: str
    architecture: str
    file: str
    sha256: str


def pack(out: Path, architectures: list[str], python: str, chip: str = "310P") -> list[Component]:
    """Fill the directory `out`, which must be new or empty; the components in it.

    `chip` is a kind (310P, A2, A3) and names the image of the Containerfile.
    Raises AscendVLError `pack-choice`, `out-not-empty`, `pack-download` or `file-unwritable`.
    """
    _check(out, architectures, python)
    try:
        for architecture in architectures:
            folder = out / "wheels" / architecture
            folder.mkdir(parents=True)
            download(requirements(), folder, architecture, python)
            build_wheel(folder)
        copy_data(out)
        (out / "Containerfile").write_text(containerfile(chip), encoding="utf-8")
        components = list(inventory(out))
        listed = [vars(component) for component in components]
        (out / "components.json").write_text(json.dumps({"schema": 1, "components": listed}, indent=2) + "\n")
        (out / "README.md").write_text(readme(architectures, python), encoding="utf-8")
        write_sums(out)
    except OSError as error:
        raise AscendVLError(
            "file-unwritable",
            Text(f"{out} cannot be written.", f"无法写入 {out}。"),
            Text(error.strerror or str(error), error.strerror or str(error)),
            Text("Name a directory on a disk with room.", "请指定有空间的磁盘上的目录。"),
        ) from None
    return components


def python_of(chip: str) -> str:
    """The Python of the image that the Containerfile starts from."""
    best = best_release(chip)
    return best.python[1] if best else PYTHONS[-1]


def _check(out: Path, architectures: list[str], python: str) -> None:
    if not architectures or set(architectures) - set(PLATFORMS) or python not in PYTHONS:
        raise AscendVLError(
            "pack-choice",
            Text(f"No wheels for {', '.join(architectures) or '-'} and Python {python}.",
                 f"没有 {', '.join(architectures) or '-'}、Python {python} 的 wheel。"),
            Text("Containers of vllm-ascend are of these kinds only.", "vllm-ascend 容器只有以下几种。"),
            Text(f"--arch: {', '.join(PLATFORMS)}; --python: {', '.join(PYTHONS)}.",
                 f"--arch：{', '.join(PLATFORMS)}；--python：{', '.join(PYTHONS)}。"),
        )  # fmt: skip
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise AscendVLError(
            "out-not-empty",
            Text(f"{out} is not empty.", f"{out} 不是空目录。"),
            Text("A pack must not mix with older files.", "打包内容不能与旧文件混在一起。"),
            Text("Name a new directory.", "请指定新目录。"),
        )


def requirements() -> list[str]:
    """What this package needs, without its extras."""
    listed = metadata.requires("ascend-vl") or []
    return [line for line in listed if "extra ==" not in line]


def download(wanted: list[str], folder: Path, architecture: str, python: str) -> None:
    """Binary wheels of `wanted` and all they need, by pip. Raises AscendVLError `pack-download` in pip's own words."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--dest", str(folder), "--only-binary=:all:", "--implementation", "cp", "--python-version", python]
    for platform in PLATFORMS[architecture]:
        command += ["--platform", platform]
    done = subprocess.run([*command, *wanted], capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
        raise AscendVLError(
            "pack-download",
            Text(f"The wheels for {architecture} were not all found.", f"未能取得 {architecture} 的全部 wheel。"),
            Text(last, last),
            Text(
                "Check the network and pip's index, then run it again in a new directory.",
                "检查网络与 pip 源，然后在新目录中重试。",
            ),
        )


def build_wheel(folder: Path) -> Path:
    """This installation as a pure-Python wheel, without a build tool; byte for byte the same each time."""
    tag = f"ascend_vl-{__version__}"
    path = folder / f"{tag}-py3-none-any.whl"
    record: list[tuple[str, str, int]] = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in wheel_files(tag):
            entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            wheel.writestr(entry, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record.append((name, f"sha256={digest}", len(content)))
        text = io.StringIO()
        lines: list[tuple[object, ...]] = [*record, (f"{tag}.dist-info/RECORD", "", "")]
        csv.writer(text, lineterminator="\n").writerows(lines)
        wheel.writestr(zipfile.ZipInfo(f"{tag}.dist-info/RECORD", (2020, 1, 1, 0, 0, 0)), text.getvalue())
    return path


def wheel_files(tag: str) -> Iterator[tuple[str, bytes]]:
    """(name, bytes) of every file of the wheel but RECORD."""
    for package in PACKAGES:
        root = Path(str(resources.files(package)))
        for path in sorted(root.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc":
                yield f"{package}/{path.relative_to(root).as_posix()}", path.read_bytes()
    installed = metadata.distribution("ascend-vl")
    yield (
        f"{tag}.dist-info/METADATA",
        (installed.read_text("METADATA") or installed.read_text("PKG-INFO") or "").encode(),
    )
    yield f"{tag}.dist-info/entry_points.txt", (installed.read_text("entry_points.txt") or "").encode()
    wheel = "Wheel-Version: 1.0\nGenerator: ascend-vl pack\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    yield f"{tag}.dist-info/WHEEL", wheel.encode()


def copy_data(out: Path) -> None:
    """The rule table, to be read without installing, and the demo checkpoint where this installation has one."""
    rules = Path(str(resources.files("ascend_vl.rules"))) / "data"
    shutil.copytree(rules, out / "rules")
    demo = Path(str(resources.files("ascend_vl"))) / "demo" / "checkpoint"
    if demo.is_dir():
        shutil.copytree(demo, out / "demo-checkpoint")


def inventory(out: Path) -> Iterator[Component]:
    """Every wheel with its licence, from its own metadata."""
    for path in sorted((out / "wheels").rglob("*.whl")):
        with zipfile.ZipFile(path) as wheel:
            name = next(entry for entry in wheel.namelist() if entry.endswith(".dist-info/METADATA"))
            fields = HeaderParser().parsestr(wheel.read(name).decode("utf-8", "replace"))
        yield Component(
            name=fields.get("Name", "?"),
            version=fields.get("Version", "?"),
            licence=licence(fields),
            architecture="any" if path.name.endswith("-any.whl") else path.parent.name,
            file=path.relative_to(out).as_posix(),
            sha256=sha256(path),
        )


def licence(fields: Any) -> str:
    """The licence a wheel states: its expression, its classifiers, the first line of its text, or "not stated"."""
    if expression := fields.get("License-Expression"):
        return str(expression)
    classifiers = [
        value.rpartition("::")[2].strip()
        for value in fields.get_all("Classifier") or []
        if value.startswith("License ::")
    ]
    if classifiers:
        return ", ".join(classifiers)
    return (fields.get("License") or "").strip().partition("\n")[0][:80] or "not stated"


def sha256(path: Path) -> str:
    """Hash of a file, hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def write_sums(out: Path) -> None:
    """Hashes of every file but the list itself, as sha256sum writes them."""
    paths = [path for path in sorted(out.rglob("*")) if path.is_file() and path.name != SUMS]
    lines = [f"{sha256(path)}  {path.relative_to(out).as_posix()}\n" for path in paths]
    (out / SUMS).write_text("".join(lines), encoding="utf-8")


def check(folder: Path) -> list[str]:
    """Names of files that are missing, changed, or not in the list. Raises AscendVLError `pack-unreadable`."""
    try:
        lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise AscendVLError(
            "pack-unreadable",
            Text(f"{folder} is no pack.", f"{folder} 不是打包目录。"),
            Text(f"{SUMS}: {error}", f"{SUMS}：{error}"),
            Text("Name the directory that ascend-vl pack wrote.", "请指定 ascend-vl pack 生成的目录。"),
        ) from None
    listed = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    present = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    present.pop(SUMS, None)
    wrong = [name for name, digest in listed.items() if name not in present or sha256(present[name]) != digest]
    return sorted([*wrong, *(set(present) - set(listed))])


def containerfile(chip: str) -> str:
    """An image from the official one; nothing in it is replaced, and what it has already stays as it is."""
    best = best_release(chip)
    base = image_of(best.release, chip) if best else "python:3.11-slim"
    return (
        f"ARG BASE={base}\n"
        "FROM ${BASE}\n"
        "COPY wheels /tmp/wheels\n"
        "RUN pip install --no-index --find-links /tmp/wheels/$(uname -m) ascend-vl && rm -rf /tmp/wheels\n"
    )


def readme(architectures: list[str], python: str) -> str:
    """How to use the directory, in both languages."""
    listed = ", ".join(architectures)
    return (
        f"# ascend-vl {__version__}, wheels for {listed}, Python {python}\n\n"
        "    sha256sum --check SHA256SUMS            # or: ascend-vl pack --check .\n"
        "    docker build -t ascend-vl -f Containerfile .   # an image from the official one\n"
        "    pip install --no-index --find-links wheels/$(uname -m) ascend-vl   # inside a container you have\n"
        "    pip uninstall ascend-vl                 # leaves everything as it was\n\n"
        "`components.json` lists every component with its licence; `rules/` is the rule table.\n\n"
        "`components.json` 列出全部组件及许可证；`rules/` 为规则表。卸载后一切恢复原样。\n"
    )
