import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from ascend_vl.serve import imports


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package `late_package` with modules `a` (which imports from `b`) and `b`."""
    folder = tmp_path / "late_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "a.py").write_text("from late_package.b import build\n\ndef use():\n    return build()\n")
    (folder / "b.py").write_text("def build():\n    return 'stock'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "late_package"
    for name in [name for name in sys.modules if name.startswith("late_package")]:
        del sys.modules[name]


def replace_build(module: ModuleType) -> None:
    module.build = lambda: "ours"  # type: ignore[attr-defined]


def test_a_later_import_is_acted_on_before_others_bind_its_names(package: str) -> None:
    imports.when_imported("late_package.b", replace_build)
    assert "late_package" not in sys.modules
    import late_package.a  # type: ignore[import-not-found]

    assert late_package.a.use() == "ours"
    assert late_package.b.__spec__.loader.__class__.__name__ == "SourceFileLoader"


def test_an_imported_module_is_acted_on_now(package: str) -> None:
    import late_package.b  # type: ignore[import-not-found]

    imports.when_imported("late_package.b", replace_build)
    assert late_package.b.build() == "ours"


def test_a_module_that_is_never_there_is_still_not_there(package: str) -> None:
    imports.when_imported("late_package.nowhere", replace_build)
    with pytest.raises(ModuleNotFoundError):
        import late_package.nowhere  # type: ignore[import-not-found]  # noqa: F401


def test_a_module_run_with_dash_m_is_acted_on_as_main(package: str, tmp_path: Path) -> None:
    (tmp_path / "late_package" / "server.py").write_text(
        "from ascend_vl.serve import imports\n"
        "def build():\n    return 'stock'\n"
        "def act(module):\n    module.build = lambda: 'ours'\n"
        "if __name__ == '__main__':\n"
        "    imports.when_imported('late_package.server', act)\n"
        "    print(build())\n"
    )
    run = subprocess.run(
        [sys.executable, "-m", "late_package.server"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "ours"
