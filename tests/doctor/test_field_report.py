"""What doctor makes of a field report: the machine, the findings, and the guesses they retire."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ascend_vl.adaptations import RECORDS, MachineFacts
from ascend_vl.cli.app import run_command
from ascend_vl.errors import AscendVLError
from ascend_vl.plan.diagnosis import examine
from ascend_vl.plan.field_report import read
from ascend_vl.probes.field import NOT_ASKED, SCHEMA
from ascend_vl.probes.field_questions import QUESTIONS
from ascend_vl.probes.registry import PROBES
from ascend_vl.rules import table

FACTS = MachineFacts("310P3", "9.1.0", "25.5.2", "2.10.0.post4", "0.23.0.post1", "0.23.0")


def answer(fault: bool | None) -> dict[str, Any]:
    return {"fault": fault, "reason": {"en": "as measured", "zh": "实测"}, "numbers": {}}


def written(folder: Path, answers: dict[str, bool | None], **changes: Any) -> Path:
    """A report of a 300I Duo, as `ascend-vl field` writes it."""
    value = {
        "schema": SCHEMA,
        "emulated": False,
        "facts": asdict(FACTS),
        "chips": ["310P3", "310P3"],
        "chip_memory_bytes": 44280 * 2**20,
        "answers": {label: answer(fault) for label, fault in answers.items()},
        "not_asked": NOT_ASKED,
    }
    path = folder / "field.json"
    path.write_text(json.dumps(value | changes))
    return path


def states(path: Path) -> dict[str, str]:
    report = read(path)
    return {outcome.id: outcome.state for outcome in examine(report.machine, field=report).adaptations}


def test_the_machine_is_the_reports(tmp_path: Path) -> None:
    machine = read(written(tmp_path, {})).machine
    assert (machine.kind, len(machine.chips), machine.chip_bytes) == ("310P", 2, 44280 * 2**20)
    assert (machine.driver, machine.cann, machine.vllm_ascend) == ("25.5.2", "9.1.0", "0.23.0.post1")
    assert machine.packages["torch-npu"] == "2.10.0.post4"
    assert machine.described and not machine.emulated


def test_an_answer_takes_the_place_of_a_guess(tmp_path: Path) -> None:
    assert states(written(tmp_path, {}))["embedding-merge"] == "unprobed"
    assert states(written(tmp_path, {"index-put@72": False}))["embedding-merge"] == "probed-fine"
    assert states(written(tmp_path, {"index-put@72": True}))["embedding-merge"] == "active"
    assert states(written(tmp_path, {"vision-precision@72": True}))["vision-exact-kernel"] == "active"


def test_guesses_are_retired_by_verdicts_only(tmp_path: Path) -> None:
    path = written(
        tmp_path, {"index-put@72": None, "copy-race@72": False, "copy-race@64": True, "unpad-kernels@72": False}
    )
    settled = {one.id: one for one in read(path).settled}
    rows = {row.id: row for row in table().questions}
    assert set(settled) == {"question-copy-race", "question-unpad-kernels"}
    assert settled["question-copy-race"].answer == rows["question-copy-race"].fault
    assert settled["question-unpad-kernels"].answer == rows["question-unpad-kernels"].fine
    assert all(one.to_json()["retired"] for one in settled.values())


def test_an_emulated_report_retires_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, {"index-put@72": True}, emulated=True)
    report = read(path)
    assert [one.to_json()["retired"] for one in report.settled] == [False]
    assert run_command("doctor", ["--field", str(path)]) == 0
    assert "emulated" in capsys.readouterr().out


def test_every_question_of_the_table_is_asked_by_the_field_report_and_the_other_way_round() -> None:
    asked, settled = set(PROBES) | set(QUESTIONS), {row.probe for row in table().questions}
    assert settled <= asked
    assert {record.probe for record in RECORDS} & asked <= settled
    assert set(PROBES) <= settled
    assert all(row.tag == "H" for row in table().questions)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_shown(tmp_path: Path, language: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, {"index-put@72": True, "bfloat16@72": True})
    assert run_command("doctor", ["--field", str(path), "--lang", language]) == 0
    out = capsys.readouterr().out
    row = next(row for row in table().questions if row.probe == "index-put")
    assert "index-put@72" in out and "question-boolean-mask" in out
    assert str(getattr(row.fault, language)) in out


def test_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_command("doctor", ["--field", str(written(tmp_path, {"index-put@72": False})), "--json"])
    value = json.loads(capsys.readouterr().out)
    assert value["field"]["answers"]["index-put@72"]["fault"] is False
    assert [one["id"] for one in value["field"]["settled"]] == ["question-boolean-mask"]


def test_a_report_without_vllm_ascend(tmp_path: Path) -> None:
    facts = asdict(FACTS) | {"vllm_ascend": None, "cann": None}
    machine = read(written(tmp_path, {}, facts=facts)).machine
    assert (machine.vllm_ascend, machine.cann) == (None, None)
    assert "transformers" not in machine.packages


@pytest.mark.parametrize("beside", [["--chip", "910b3"], ["--probe"], ["--held", "3"], ["--server", "http://x"]])
def test_another_machine_beside_it_is_refused(
    tmp_path: Path, beside: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command("doctor", ["--field", str(written(tmp_path, {})), *beside, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "usage"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.sampled_from(["schema", "facts", "answers", "chips", "chip_memory_bytes", "emulated"]),
        st.recursive(
            st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.text(max_size=5)),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
            max_leaves=6,
        ),
        max_size=3,
    )
)
def test_a_mangled_report_is_refused_in_words(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = written(tmp_path, {"index-put@72": True})
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    try:
        read(path)
    except AscendVLError as error:
        assert error.exit_code == 2
