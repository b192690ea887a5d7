"""The order of the stages, what stops them, and what is then said."""

import importlib.util
import sys

import pytest

from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text
from ascend_vl.verify import stages, verification


@pytest.fixture
def registry(monkeypatch):
    """registry(P=function, Q=function) is then all there is."""

    def make(**functions):
        monkeypatch.setattr(stages, "REGISTRY", {})
        for key, function in functions.items():
            name = f"stage_of_this_test_{key}"
            module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader=None))
            module.run = function
            monkeypatch.setitem(sys.modules, name, module)
            stages.register(stages.Stage(key, name, Text(key, key), Text("-", "-")))

    return make


@pytest.fixture
def session(tmp_path):
    return stages.Session(tmp_path, tmp_path / "cases.jsonl", tmp_path / "out", [])


def good(session):
    session.check("fine", True)


def bad(session):
    session.check("fine", True)
    session.check("wrong", False, Text("because", "因为"))
    raise AssertionError("a failing check must end its stage")


def refuses(code):
    def run(session):
        raise AscendVLError(code, Text("What.", "何。"), Text("Why.", "因。"), Text("Do.", "做。"))

    return run


def outcome(session, keys):
    results = stages.run(session, keys)
    record = verification.summary(session, results, "default")
    return record["verdict"], {r.key: r.status for r in results}, record["not_run"]


def test_all_that_is_asked_passes(registry, session):
    registry(P=good, Q=good)
    assert outcome(session, ["P", "Q"]) == ("pass", {"P": "passed", "Q": "passed"}, [])


def test_a_failing_check_ends_its_stage_and_the_verification(registry, session):
    registry(P=bad, Q=good)
    verdict, statuses, not_run = outcome(session, ["P", "Q"])
    assert (verdict, statuses) == ("fail", {"P": "failed", "Q": "not run"})
    assert not_run == [{"stage": "Q", "why": "stage P failed"}]


def test_what_was_not_asked_for_is_said(registry, session):
    registry(P=good, Q=good)
    assert outcome(session, ["Q"]) == (
        "pass",
        {"P": "not run", "Q": "passed"},
        [{"stage": "P", "why": "not asked for"}],
    )


def test_an_error_about_the_model_fails_the_stage_by_its_code(registry, session):
    registry(P=refuses("server-failed"))
    results = stages.run(session, ["P"])
    assert (results[0].status, results[0].checks[-1].name) == ("failed", "server-failed")
    assert results[0].checks[-1].detail == "What. Why. Do."


@pytest.mark.parametrize("code", ["engine-missing", "reference-missing", "embedder-missing", "checkpoint-changed"])
def test_an_error_about_something_else_is_no_verdict(registry, session, code):
    registry(P=refuses(code))
    with pytest.raises(AscendVLError):
        stages.run(session, ["P"])


def test_nothing_asked_for_is_refused():
    for text in ("", "Z", "A,Z"):
        with pytest.raises(AscendVLError) as caught:
            stages.chosen(text)
        assert caught.value.code == "stage-unknown"
    assert stages.chosen("c, a") == ["A", "C"]


def test_weights_that_change_under_a_running_engine_are_noticed(session, tmp_path):
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"one")
    session.use(object())
    session.require_unchanged()
    weights.write_bytes(b"another")
    with pytest.raises(AscendVLError) as caught:
        session.require_unchanged()
    assert (caught.value.code, caught.value.exit_code) == ("checkpoint-changed", 2)
