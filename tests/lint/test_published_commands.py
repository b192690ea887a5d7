"""The commands people copy, with every finding they must get."""

from pathlib import Path

import pytest

from ascend_vl.plan.lint import lint

DATA = Path(__file__).parents[1] / "data"

# (line, severity, rule)
DUO_PORT = [
    (60, "warning", "lint-image-legacy"),
    (66, "note", "lint-framework-named"),
    (72, "warning", "lint-checkpoint-edited"),
    (82, "error", "flag-dtype-absent-310p"),
    (82, "warning", "flag-prefix-caching-310p"),
    (82, "note", "lint-open-to-all"),
]
HIDREAM_PORT = [
    (1, "note", "lint-nothing"),
    (27, "warning", "lint-framework-patched"),
    (39, "note", "lint-framework-named"),
]
OFFICIAL = [
    (1, "error", "env-aiv-310p"),
    (8, "warning", "flag-eager-310p"),
    (11, "note", "lint-open-to-all"),
    (13, "error", "flag-dtype-bfloat16-310p"),
    (13, "error", "lint-repeated-contradiction"),
    (15, "error", "lint-broken-continuation"),
    (16, "note", "flag-trust-remote-code-needless"),
    (18, "error", "flag-max-model-len-310p"),
    (18, "error", "lint-repeated-contradiction"),
    (20, "error", "flag-graph-sizes-310p-tp"),
]


def found(text: str, chip: str | None, version: str | None = None) -> list[tuple[int, str, str]]:
    return [(one.line, one.severity, one.rule) for one in lint(text, chip, version).findings]


def test_300i_duo_port() -> None:
    text = (DATA / "ports/qwen3-vl-300i-duo.txt").read_text(encoding="utf-8")
    assert found(text, None) == DUO_PORT
    assert found(text, "300i-duo") == DUO_PORT


def test_hidream_port() -> None:
    text = (DATA / "ports/hidream-o1-910b.txt").read_text(encoding="utf-8")
    assert found(text, "910b3", "0.18.0") == HIDREAM_PORT


def test_official_300i_duo_command() -> None:
    text = (DATA / "lint/official-300i-duo.sh").read_text(encoding="utf-8")
    assert found(text, "300i-duo", "0.23.0.post1") == OFFICIAL


def test_official_command_repaired() -> None:
    text = (DATA / "lint/official-300i-duo.sh").read_text(encoding="utf-8")
    report = lint(text, "300i-duo", "0.23.0.post1")
    assert report.exit_code == 1
    again = lint(report.repaired, "300i-duo", "0.23.0.post1")
    assert [one.rule for one in again.findings] == ["lint-open-to-all"]
    assert again.exit_code == 0
    assert "--dtype float16" in report.repaired
    assert "bfloat16" not in report.repaired
    assert "--max-model-len 16384" in report.repaired
    assert "AIV" not in report.repaired
    assert "--port 8000" in report.repaired


@pytest.mark.parametrize("name", ["ports/qwen3-vl-300i-duo.txt", "lint/official-300i-duo.sh"])
def test_findings_speak_both_languages_and_name_evidence(name: str) -> None:
    for one in lint((DATA / name).read_text(encoding="utf-8"), "300i-duo").findings:
        assert one.evidence
        for text in (one.title, one.text, one.fix):
            assert text.en.isascii() and text.en.strip()
            assert text.zh.strip()
