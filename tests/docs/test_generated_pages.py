"""The generated pages are what the generator writes now, in both languages alike."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from npu_emulator.faults import FAULTS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return dict(generator().pages())


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "scripts/docs/generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pages_are_current(pages: dict[str, str]) -> None:
    stale = []
    for path, text in pages.items():
        target = ROOT / "docs" / path
        if not target.is_file() or target.read_text(encoding="utf-8") != text:
            stale.append(path)
    assert stale == [], "run scripts/docs/generate.py"


def test_no_page_is_left_over(pages: dict[str, str]) -> None:
    for folder in ("plans", "reference"):
        for language in ("en", "zh"):
            found = {
                path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs" / language / folder).glob("*.md")
            }
            generated = {
                path for path in found if "scripts/docs/generate.py" in (ROOT / "docs" / path).read_text("utf-8")
            }
            assert generated <= set(pages)


def test_both_languages_have_the_same_pages_of_the_same_shape(pages: dict[str, str]) -> None:
    for path, english in pages.items():
        if not path.startswith("en/"):
            continue
        chinese = pages["zh/" + path.removeprefix("en/")]
        for pattern in (r"(?m)^#+ ", r"(?m)^\| ", r"(?m)^```"):
            assert len(re.findall(pattern, english)) == len(re.findall(pattern, chinese)), (path, pattern)
        assert not re.search(r"[\u4e00-\u9fff]", english), path
        assert re.search(r"[\u4e00-\u9fff]", chinese), path


def test_every_model_and_card_has_a_page(pages: dict[str, str]) -> None:
    plans = [path for path in pages if path.startswith("en/plans/") and not path.endswith("index.md")]
    assert len(plans) == 30
    for path in plans:
        assert "vllm serve" in pages[path] or "ascend_vl.serve.launch" in pages[path] or "does not fit" in pages[path]
        assert "not run on this card" in pages[path]


@pytest.mark.parametrize("readme", ["README.md", "README.zh.md"])
def test_the_lengths_on_the_first_page_are_the_plans(pages: dict[str, str], readme: str) -> None:
    rows = [line for line in (ROOT / readme).read_text("utf-8").splitlines() if line.startswith("| ")][1:4]
    assert len(rows) == 3
    for row, model in zip(rows, ("qwen3-vl-8b", "qwen3-vl-32b", "hidream-o1-image"), strict=True):
        for cell, card in zip(row.split("|")[2:4], ("300i-duo", "800i-a2"), strict=True):
            length = re.search(r"`max_model_len` \| `(\d+)`", pages[f"en/plans/{model}-{card}.md"])
            assert length is not None and re.search(r"\d+", cell)[0] == length[1], (readme, row)  # type: ignore[index]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_fault_of_the_emulator_is_named(language: str) -> None:
    page = (ROOT / "docs" / language / "emulator.md").read_text("utf-8")
    assert [name for name in FAULTS if f"`{name}`" not in page] == []


def test_links_between_pages_lead_somewhere(pages: dict[str, str]) -> None:
    for path, text in pages.items():
        for target in re.findall(r"\]\((?!https://)([^)]+)\)", text):
            resolved = (ROOT / "docs" / path).parent / target
            assert resolved.resolve().exists(), (path, target)
