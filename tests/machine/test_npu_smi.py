"""npu-smi's output in several shapes."""

import importlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascend_vl.machine import npu_smi
from ascend_vl.machine.detect import chips_from_smi

detect = importlib.import_module("ascend_vl.machine.detect")

DATA = Path(__file__).parents[1] / "data/npu-smi"
MB = 2**20


def sample(name: str) -> str:
    return (DATA / f"{name}.txt").read_text(encoding="utf-8")


def test_a_duo_card_is_two_chips() -> None:
    chips, problems = chips_from_smi(sample("duo.info"), sample("duo.mapping"))
    assert problems == []
    assert [(chip.card, chip.chip, chip.device) for chip in chips] == [(1, 0, 0), (1, 1, 1), (8, 0, 2), (8, 1, 3)]
    assert {chip.product for chip in chips} == {"300i-duo"}
    assert {chip.kind for chip in chips} == {"310P"}
    assert [chip.memory_bytes for chip in chips[:2]] == [44278 * MB, 43693 * MB]


def test_who_holds_memory() -> None:
    chips, _ = chips_from_smi(sample("duo.info"))
    assert [len(chip.holders) for chip in chips] == [0, 0, 0, 1]
    holder = chips[3].holders[0]
    assert (holder.pid, holder.name, holder.memory_bytes) == (4021, "python3", 19480 * MB)
    assert chips[3].used_bytes == 20992 * MB
    assert chips[3].free_bytes == (43693 - 20992) * MB


@pytest.mark.parametrize(
    ("name", "count", "product", "kind"),
    [
        ("duo-one-chip.info", 1, "300i-duo", "310P"),
        ("300i-pro.info", 2, "300i-pro", "310P"),
        ("910b.info", 8, "800i-a2", "A2"),
        ("a3.info", 4, "a3", "A3"),
    ],
)
def test_products(name: str, count: int, product: str, kind: str) -> None:
    chips, problems = chips_from_smi(sample(name))
    assert problems == []
    assert len(chips) == count
    assert {(chip.product, chip.kind) for chip in chips} == {(product, kind)}
    assert [chip.device for chip in chips] == list(range(count))


def test_hbm_is_read_where_there_is_hbm() -> None:
    chips, _ = chips_from_smi(sample("910b.info"))
    assert {chip.memory_bytes for chip in chips} == {65536 * MB}
    assert chips[5].used_bytes == 35738 * MB
    assert chips[5].holders[0].name == "VLLM::Worker"
    assert [chip.device for chip in chips if chip.health != "OK"] == [3]


def test_dies_of_an_a3_module_share_the_card() -> None:
    chips, _ = chips_from_smi(sample("a3.info"))
    assert [(chip.card, chip.chip) for chip in chips] == [(0, 0), (0, 1), (1, 0), (1, 1)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (sample("broken.info"), "npu-smi-failed"),
        (sample("none.info"), "npu-smi-unreadable"),
        ("", "npu-smi-unreadable"),
        (sample("truncated.info"), "npu-smi-truncated"),
    ],
)
def test_what_is_wrong_is_named(text: str, problem: str) -> None:
    _, problems = chips_from_smi(text)
    assert problems == [problem]


def test_chips_before_the_break_are_kept() -> None:
    chips, _ = chips_from_smi(sample("truncated.info"))
    assert [(chip.card, chip.chip) for chip in chips] == [(1, 0), (1, 1)]


def test_version_of_npu_smi() -> None:
    assert npu_smi.parse_info(sample("300i-pro.info")).version == "24.1.rc2"
    assert npu_smi.parse_info(sample("910b.info")).version == "25.5.0"


def test_mapping_leaves_the_mcu_out() -> None:
    assert npu_smi.parse_mapping(sample("duo.mapping")) == {(1, 0): 0, (1, 1): 1, (8, 0): 2, (8, 1): 3}


def test_listing_board_and_usages() -> None:
    assert npu_smi.card_count(sample("duo.list")) == 2
    assert npu_smi.card_count("") is None
    assert npu_smi.board_versions(sample("duo.board")) == ("25.5.1", "7.8.0.2.220")
    assert npu_smi.board_versions("nothing") == (None, None)
    assert npu_smi.memory_usages(sample("duo.usages")) == {
        0: (44278 * MB * 3 // 100, 44278 * MB),
        1: (43693 * MB * 48 // 100, 43693 * MB),
    }
    assert npu_smi.memory_usages("DDR Capacity(MB) : x") == {}


def said(monkeypatch: pytest.MonkeyPatch, answers: dict[str, str]) -> None:
    """Have npu-smi print those texts, by its arguments."""
    monkeypatch.setattr(detect, "smi", lambda *arguments: answers.get(" ".join(arguments), ""))


def test_everything_that_npu_smi_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answers = {
        "info": sample("duo.info"),
        "info -m": sample("duo.mapping"),
        "info -l": sample("duo.list"),
        "info -t board -i 1": sample("duo.board"),
    }
    said(monkeypatch, answers)
    machine = detect.detect(tmp_path)
    assert (len(machine.chips), machine.driver, machine.firmware) == (4, "25.5.1", "7.8.0.2.220")
    assert machine.problems == ()
    said(monkeypatch, answers | {"info -l": sample("duo.list").replace(": 2", ": 3", 1)})
    assert detect.detect(tmp_path).problems == ("cards-not-shown",)


def test_memory_that_the_table_does_not_print_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    table = sample("duo.info").replace("20992/ 43693", "0    / 0    ").replace("1460 / 44278", "0    / 0    ")
    said(monkeypatch, {"info": table, "info -t usages -i 8": sample("duo.usages")})
    chips = detect.detect(tmp_path).chips
    assert [chip.memory_bytes for chip in chips] == [44278 * MB, 43693 * MB, 44278 * MB, 43693 * MB]
    assert chips[3].used_bytes == 43693 * MB * 48 // 100


SAMPLES = [path.read_text(encoding="utf-8") for path in sorted(DATA.glob("*.txt"))]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_mangled_output_never_raises(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(SAMPLES))
    for _ in range(data.draw(st.integers(0, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 200)))
        text = text[:start] + data.draw(st.text(max_size=20)) + text[end:]
    chips, problems = chips_from_smi(text, text)
    assert chips or problems
    npu_smi.card_count(text)
    npu_smi.board_versions(text)
    npu_smi.memory_usages(text)


def test_where_both_memories_are_shown_programs_get_hbm() -> None:
    text = sample("910b.info").replace("0    / 0          3400 / 65536", "2462 / 15171      3400 / 65536")
    assert "15171" in text
    chips, _ = chips_from_smi(text)
    assert chips[0].memory_bytes == 65536 * MB
