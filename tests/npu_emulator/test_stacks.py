import json
from pathlib import Path

import pytest

from npu_emulator import stacks

METADATA = """Metadata-Version: 2.1
Name: example
Version: 1
Requires-Dist: torch==2.9.0
Requires-Dist: regex
Requires-Dist: numba==0.61; platform_machine != "none"
Requires-Dist: six>=1.16; python_version > "3.99"
Requires-Dist: pandas; extra == "bench"
Requires-Dist: transformers<5,>=4.56
"""


def test_requirements_leave_out_torch_and_what_does_not_apply() -> None:
    assert stacks.requirements(METADATA) == ["regex", "transformers<5,>=4.56"]


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A stack folder with one published package of two files, the compiled one left out."""
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    (site / "vllm" / "__pycache__").mkdir(parents=True)
    (site / "vllm" / "a.py").write_bytes(b"a = 1\n")
    (site / "vllm" / "__pycache__" / "a.pyc").write_bytes(b"")
    published = {"vllm": {"vllm/a.py": stacks._digest(b"a = 1\n"), "vllm/_C.so": "sha256=x"}}
    (tmp_path / "published.json").write_text(json.dumps(published))
    return tmp_path


def test_published_files_are_as_published(packages: Path) -> None:
    assert stacks.differences(packages) == []


def test_changed_added_and_missing_files_are_found(packages: Path) -> None:
    folder = packages / "lib" / "python3.11" / "site-packages" / "vllm"
    (folder / "a.py").write_bytes(b"a = 2\n")
    (folder / "b.py").write_bytes(b"")
    assert stacks.differences(packages) == ["added: vllm/b.py", "changed: vllm/a.py"]
    (folder / "a.py").unlink()
    assert stacks.differences(packages) == ["missing: vllm/a.py", "added: vllm/b.py"]


def test_unknown_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(stacks.StackError, match=r"0\.18\.0"):
        stacks.check("0.0.1", tmp_path)


def test_missing_stack_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(stacks.StackError, match=r"stacks make 0\.18\.0"):
        stacks.check("0.18.0", tmp_path)


def test_cache_folder_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NPU_EMULATOR_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert stacks.cache() == tmp_path / "npu-emulator"
    monkeypatch.setenv("NPU_EMULATOR_CACHE", str(tmp_path / "own"))
    assert stacks.cache() == tmp_path / "own"


def test_an_installed_package_carries_all_that_it_reads() -> None:
    root = Path(__file__).parents[2]
    lines = (root / "pyproject.toml").read_text().splitlines()
    (packed,) = (line for line in lines if line.startswith("npu_emulator = ["))
    suffixes = {path.suffix for path in (root / "src" / "npu_emulator").rglob("*.*") if path.is_file()}
    for suffix in suffixes - {".py", ".pyc", ".typed"}:
        assert f'"**/*{suffix}"' in packed
