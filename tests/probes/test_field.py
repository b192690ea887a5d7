"""The field report: what it asks, that it can be carried on, and what it never says. Emulated operators."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from ascend_vl.adaptations.record import Finding, MachineFacts
from ascend_vl.cli.field import exit_code
from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text
from ascend_vl.probes import field, field_engine, runner
from ascend_vl.probes.child import failure
from ascend_vl.probes.field_questions import QUESTIONS
from ascend_vl.probes.registry import PROBES
from ascend_vl.probes.shapes import Shapes

FACTS = MachineFacts("310P3", "9.1.0", "25.5.2", "2.10.0.post4", "0.23.0.post1", "0.23.0")
FINE = Finding(False, Text("fine", "正常"), {"error": 1e-4})
ENGINE = Finding(False, Text("fine", "正常"), {"answers": {"text": "my key is sk-abcdefgh12345678"}})


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """A machine with a chip whose questions are answered at once; the names asked, in order."""
    names: list[str] = []
    monkeypatch.setenv("ASCEND_VL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(field, "process_facts", lambda: FACTS)
    monkeypatch.setattr(
        runner, "ask", lambda name, shapes, **options: names.append(f"{name}@{shapes.head_size}") or FINE
    )
    monkeypatch.setattr(
        runner, "converse", lambda request, *rest: names.append(f"{request['question']}@engine") or ENGINE
    )
    return names


def test_every_probe_is_asked_at_both_widths_and_every_question_once(asked, tmp_path):
    report = field.ask_all(tmp_path / "out.json")
    assert len(asked) == 2 * len(PROBES) + len(QUESTIONS) + 1 == len(report["answers"])
    assert {label.partition("@")[0] for label in report["answers"]} == set(PROBES) | set(QUESTIONS) | {"conformance"}
    assert asked.index("float16-range@72") < asked.index("vision-borders@72") < asked.index("conformance@engine")
    assert json.loads((tmp_path / "out.json").read_text()) == json.loads(json.dumps(report))
    assert report["facts"] == asdict(FACTS)
    assert list(report["not_asked"]) == ["hidream-text"]
    assert "sk-abcdef" not in (tmp_path / "out.json").read_text()
    assert exit_code(report) == 0


def test_the_text_of_weights_is_asked_when_they_are_named(asked, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    report = field.ask_all(tmp_path / "out.json", model=tmp_path)
    assert "hidream-text@engine" in asked
    assert report["not_asked"] == {}


def tower(**changes: object) -> dict:
    same = {"equal": True, "max_abs": 0.0, "relative": 0.0}
    return {"pictures": 3, "together": same, "reversed": same, "self_agreement": same, "nearest": [0, 1, 2]} | changes


@pytest.mark.parametrize(
    ("changes", "repeated", "fault"),
    [
        ({}, True, None),
        ({"nearest": [0, 2, 1]}, True, "swapped"),
        ({"reversed": {"equal": False, "max_abs": 1.0, "relative": 0.4}}, True, "together"),
        ({"together": {"equal": False, "max_abs": None, "relative": None}}, True, "together"),
        ({}, False, "repeated"),
    ],
)
def test_conformance_is_judged(changes, repeated, fault):
    finding = field_engine.judged(tower(**changes), repeated, {"fields_right": "3 of 4"})
    assert finding.fault is (fault is not None)
    assert (fault or "fields right: 3 of 4") in finding.reason.en


def test_what_is_refused_before_the_chip_is_asked_is_no_verdict(tmp_path):
    missing = runner.converse({"question": "hidream-text", "model": str(tmp_path)}, 60, field_engine.COMMAND)
    assert (missing.fault, missing.numbers["code"]) == (None, "model-not-found")
    unknown = runner.converse({"question": "nothing", "model": str(tmp_path)}, 60, field_engine.COMMAND)
    assert unknown.fault is None


def test_an_engine_that_fails_is_a_fault():
    text = Text("vLLM ended", "vLLM 退出")
    finding = field_engine.failure(AscendVLError("server-failed", text, Text("507018", "507018"), text), {})
    assert (finding.fault, finding.numbers["why"]) == (True, "507018")


def test_a_report_is_carried_on_and_only_open_questions_are_asked_again(asked, tmp_path, monkeypatch):
    out = tmp_path / "out.json"
    open_ones = {"index-put@72", "copy-race@64"}
    monkeypatch.setattr(
        runner,
        "ask",
        lambda name, shapes, **options: (
            Finding(None, Text("busy", "忙")) if f"{name}@{shapes.head_size}" in open_ones else FINE
        ),
    )
    field.ask_all(out)
    again: list[str] = []
    monkeypatch.setattr(runner, "ask", lambda name, shapes, **o: again.append(f"{name}@{shapes.head_size}") or FINE)
    field.ask_all(out)
    assert set(again) == open_ones
    monkeypatch.setattr(field, "process_facts", lambda: MachineFacts("910B3", *list(asdict(FACTS).values())[1:]))
    again.clear()
    field.ask_all(out)
    assert len(again) == 2 * len(PROBES) + len(QUESTIONS)
    assert "conformance@engine" in asked


def test_the_time_is_kept_and_what_was_not_asked_says_so(asked, tmp_path):
    report = field.ask_all(tmp_path / "out.json", minutes=0)
    assert asked == []
    assert all(answer["fault"] is None for answer in report["answers"].values())
    assert "time" in report["answers"]["index-put@72"]["reason"]["en"]
    assert exit_code(report) == 2


def test_the_answers_come_back_as_findings(asked, tmp_path):
    field.ask_all(tmp_path / "out.json")
    facts, found = field.findings(field.load(tmp_path / "out.json"))
    assert facts == FACTS
    assert set(found) == set(PROBES) | set(QUESTIONS)
    assert set(field.findings(field.load(tmp_path / "out.json"), "64")[1]) == set(PROBES)
    assert found["index-put"] == FINE


@pytest.mark.parametrize("text", ["", "{}", '{"schema": "other", "answers": {}, "facts": {}}', "[]"])
def test_another_file_is_refused(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(AscendVLError) as error:
        field.load(tmp_path / "x.json")
    assert error.value.code == "field-unreadable"


def test_without_a_chip_there_is_nobody_to_ask(monkeypatch, tmp_path):
    monkeypatch.setattr(field, "process_facts", MachineFacts)
    with pytest.raises(AscendVLError) as error:
        field.ask_all(tmp_path / "out.json")
    assert (error.value.code, error.value.exit_code) == ("field-no-chip", 2)


def test_a_place_that_cannot_be_written_is_named(asked, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(AscendVLError) as error:
        field.ask_all(tmp_path / "file" / "out.json")
    assert error.value.code == "field-unwritable"


def test_the_device_log_is_redacted_and_cut(tmp_path):
    folder = tmp_path / field.LOG_FOLDER
    folder.mkdir(parents=True)
    lines = [f"[ERROR] line {n} from 192.168.7.9 token=hf_abcdefghijklmnopqrstuvwxyz0123" for n in range(500)]
    (folder / "plog-1.log").write_text("\n".join(lines))
    log = field.device_log(tmp_path)
    assert len(log) == field.LOG_LINES
    assert "line 499" in log[-1]
    assert "192.168.7.9" not in "".join(log)
    assert "hf_abcdefghij" not in "".join(log)


SHAPES = Shapes(vision_heads=2, hidden=64, merged=192, pictures=(24, 8))


def answer(name: str) -> Finding:
    noted: dict[str, object] = {}
    try:
        return QUESTIONS[name].run(SHAPES, lambda **found: noted.update(found))
    except Exception as error:
        return failure(error, noted)


def test_questions_on_310p_without_faults(machine, monkeypatch):
    monkeypatch.setattr("ascend_vl.probes.field_questions.LARGE_PICTURE", 160)
    machine("310P3", "0.23.0")
    assert answer("prompt-flash-lengths").fault is True
    assert answer("unpad-kernels").fault is False
    assert answer("cache-layouts").fault is False
    assert answer("float16-range").fault is False


def test_questions_find_the_approximate_kernel_and_only_it(machine, monkeypatch):
    monkeypatch.setattr("ascend_vl.probes.field_questions.LARGE_PICTURE", 160)
    machine("310P3", "0.23.0", "unpad-approximate")
    finding = answer("unpad-kernels")
    assert finding.fault is True
    assert "kernel 2" in finding.reason.en
    machine("310P3", "0.18.0", "unpad-approximate")
    assert answer("unpad-kernels").fault is None
