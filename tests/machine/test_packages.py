"""Installed packages, without importing any."""

import base64
import hashlib
from pathlib import Path

import pytest

from ascend_vl.machine import packages


def install(site: Path, name: str, version: str, files: dict[str, str]) -> None:
    """A package as pip leaves it: files, METADATA, RECORD with hashes."""
    lines = []
    for path, text in files.items():
        target = site / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(text)}")
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
    (info / "RECORD").write_text("\n".join([*lines, f"{info.name}/RECORD,,"]) + "\n", encoding="utf-8")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    install(
        tmp_path,
        "vllm-ascend",
        "0.18.0",
        {
            "vllm_ascend/__init__.py": "raise RuntimeError('imported')\n",
            "vllm_ascend/_build_info.py": "__device_type__ = '_310P'\n",
            "vllm_ascend/worker/worker_v1.py": "x = 1\n",
        },
    )
    install(tmp_path, "vllm", "0.18.0", {"vllm/model_executor/models/qwen3_vl.py": "y = 2\n"})
    return tmp_path


def test_versions(site: Path) -> None:
    found = packages.distributions([str(site)])
    assert packages.versions(found) == {"vllm": "0.18.0", "vllm-ascend": "0.18.0"}
    assert packages.duplicates(found) == ()


def test_hand_edited_files_are_named(site: Path) -> None:
    assert packages.edited_files(packages.distributions([str(site)])) == ()
    (site / "vllm/model_executor/models/qwen3_vl.py").write_text("y = 3\n", encoding="utf-8")
    (site / "vllm_ascend/worker/worker_v1.py").unlink()
    edited = packages.edited_files(packages.distributions([str(site)]))
    assert edited == ("vllm/model_executor/models/qwen3_vl.py", "vllm_ascend/worker/worker_v1.py")


def test_device_type_is_read_as_text(site: Path) -> None:
    assert packages.device_type(packages.distributions([str(site)])) == "310P"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("__soc_version__ = 'ASCEND910B1'", "A2"),
        ("__device_type__ = 'A2'", "A2"),
        ("__device_type__ = AscendDeviceType.A3", "A3"),
        ("__soc_version__ = 'ascend310p1'", "310P"),
        ("__device_type__ = '_310P'", "310P"),
        ("__soc_version__ = 'ascend910_9391'", "A3"),
        ("nothing", None),
    ],
)
def test_build_info_of_every_age(tmp_path: Path, text: str, kind: str | None) -> None:
    install(tmp_path, "vllm-ascend", "0.1", {"vllm_ascend/_build_info.py": text + "\n"})
    assert packages.device_type(packages.distributions([str(tmp_path)])) == kind


def test_two_copies_are_noticed(site: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    install(other, "vllm", "0.23.0", {"vllm/__init__.py": ""})
    found = packages.distributions([str(site), str(other)])
    assert packages.duplicates(found) == ("vllm",)
    assert packages.versions(found)["vllm"] == "0.18.0"


def test_a_record_of_rubbish_has_no_hashes() -> None:
    assert packages.recorded_hashes('a,b\n"unclosed\0,sha256=x') == []
    assert packages.recorded_hashes("p.py,sha256=abc,3\nq.py,,\n") == [("p.py", "abc")]
