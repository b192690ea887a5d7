"""Packing for a site without a network: complete, checkable, and gone without a trace when uninstalled."""

import json
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from ascend_vl.errors import AscendVLError
from ascend_vl.plan import pack
from ascend_vl.rules import version_row

GROUP = "vllm.general_plugins"


def stand_in(folder: Path, name: str, licence: str = "License-Expression: MIT") -> None:
    """A wheel of that name with nothing in it, so that no network is needed."""
    plain = re.sub(r"[-_.]+", "_", name).lower()
    info = f"{plain}-99.0.dist-info"
    with zipfile.ZipFile(folder / f"{plain}-99.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.4\nName: {name}\nVersion: 99.0\n{licence}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """pip sees only stand-ins of what this package needs."""
    folder = tmp_path_factory.mktemp("index")
    for line in pack.requirements():
        match = re.match(r"[\w.-]+", line)
        assert match is not None
        stand_in(folder, match.group(0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_FIND_LINKS", str(folder))
        patch.setenv("PIP_CONFIG_FILE", "/dev/null")
        yield folder


@pytest.fixture(scope="module")
def once(index: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("packed") / "out"
    pack.pack(out, ["aarch64", "x86_64"], "3.11", "310P")
    return out


@pytest.fixture
def packed(once: Path, tmp_path: Path) -> Path:
    """A pack that a test may spoil."""
    return Path(shutil.copytree(once, tmp_path / "out"))


def test_the_directory_is_complete(packed: Path) -> None:
    components = json.loads((packed / "components.json").read_text())["components"]
    names = {component["name"] for component in components}
    assert {"ascend-vl", "typer", "pydantic", "safetensors", "modelscope"} <= names
    assert all(component["licence"] != "" for component in components)
    for architecture in ("aarch64", "x86_64"):
        assert (packed / "wheels" / architecture / f"ascend_vl-{pack.__version__}-py3-none-any.whl").is_file()
    assert (packed / "rules/versions.yaml").is_file()
    text = (packed / "Containerfile").read_text()
    assert "ARG BASE=quay.io/ascend/vllm-ascend:v0.23.0.post1-310p" in text
    assert "--no-index" in text
    assert pack.check(packed) == []


def test_checksums_are_those_of_sha256sum(packed: Path) -> None:
    done = subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=packed, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_changed_is_named(packed: Path) -> None:
    (packed / "rules/chips.yaml").write_text("changed")
    (packed / "Containerfile").unlink()
    (packed / "extra.txt").write_text("x")
    assert pack.check(packed) == ["Containerfile", "extra.txt", "rules/chips.yaml"]


def test_the_wheel_is_the_same_each_time(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert pack.build_wheel(tmp_path / "a").read_bytes() == pack.build_wheel(tmp_path / "b").read_bytes()


def test_installing_and_uninstalling_leaves_nothing(tmp_path: Path) -> None:
    place = tmp_path / "venv"
    venv.create(place, with_pip=False)
    python = place / "bin" / "python"
    wheel = pack.build_wheel(tmp_path)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
    ask = [
        str(python),
        "-c",
        f"from importlib.metadata import entry_points as e; print([p.value for p in e(group={GROUP!r})])",
    ]

    def files() -> list[str]:
        return sorted(p.relative_to(place).as_posix() for p in place.rglob("*") if "__pycache__" not in p.parts)

    before = files()
    subprocess.run([*pip, "install", "--no-deps", "--no-index", "--no-compile", "-q", str(wheel)], check=True)
    assert "ascend_vl.plugin:register" in subprocess.run(ask, capture_output=True, text=True, check=True).stdout
    assert (place / "bin" / "ascend-vl").is_file()
    rules = subprocess.run(
        [str(python), "-c", "import ascend_vl.language; print(ascend_vl.language.Text('a', 'b').en)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert rules.stdout.strip() == "a"
    subprocess.run([*pip, "uninstall", "-y", "-q", "ascend-vl"], check=True)
    assert subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip() == "[]"
    assert files() == before


@pytest.mark.parametrize(("architectures", "python"), [([], "3.11"), (["riscv64"], "3.11"), (["aarch64"], "2.7")])
def test_impossible_choices(tmp_path: Path, architectures: list[str], python: str) -> None:
    with pytest.raises(AscendVLError) as caught:
        pack.pack(tmp_path / "out", architectures, python)
    assert caught.value.code == "pack-choice"


@pytest.mark.parametrize("chip", ["310P", "A2", "A3"])
def test_the_wheels_are_for_the_python_of_the_image(chip: str) -> None:
    release = pack.containerfile(chip).partition("vllm-ascend:v")[2].split("-")[0].split()[0]
    row = version_row(release)
    assert row is not None and pack.python_of(chip) == row.python[1]


def test_a_directory_with_something_in_it(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("x")
    with pytest.raises(AscendVLError) as caught:
        pack.pack(tmp_path, ["aarch64"], "3.11")
    assert caught.value.code == "out-not-empty"


def test_a_wheel_that_is_not_to_be_had(index: Path, tmp_path: Path) -> None:
    wheel = next(index.glob("typer-*"))
    wheel.rename(tmp_path / wheel.name)
    try:
        with pytest.raises(AscendVLError) as caught:
            pack.pack(tmp_path / "out", ["aarch64"], "3.11")
    finally:
        (tmp_path / wheel.name).rename(wheel)
    assert caught.value.code == "pack-download"
    assert "typer" in caught.value.why.en


def test_no_pack_at_all(tmp_path: Path) -> None:
    with pytest.raises(AscendVLError) as caught:
        pack.check(tmp_path)
    assert caught.value.code == "pack-unreadable"


@pytest.mark.parametrize(
    ("lines", "licence"),
    [
        ("License-Expression: Apache-2.0", "Apache-2.0"),
        ("Classifier: License :: OSI Approved :: MIT License", "MIT License"),
        ("License: BSD 3-Clause", "BSD 3-Clause"),
        ("Summary: x", "not stated"),
    ],
)
def test_licences(tmp_path: Path, lines: str, licence: str) -> None:
    (tmp_path / "wheels/x").mkdir(parents=True)
    stand_in(tmp_path / "wheels/x", "thing", lines)
    assert [component.licence for component in pack.inventory(tmp_path)] == [licence]


def test_requirements_are_the_packages_own() -> None:
    assert len(pack.requirements()) >= 10
    assert all("extra" not in line for line in pack.requirements())
    assert metadata.version("ascend-vl") == pack.__version__
