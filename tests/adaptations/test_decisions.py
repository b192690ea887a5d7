"""How adaptations stand, the user's word, and who may act when."""

import subprocess
import sys
from dataclasses import replace

import pytest
from towers import Model

from ascend_vl.adaptations import MachineFacts, apply, expected, registry, report
from ascend_vl.adaptations.decide import at_least, known_stack, release
from ascend_vl.adaptations.override import parse
from ascend_vl.adaptations.phase import WrongPhase, phase_of
from ascend_vl.adaptations.record import PHASES, Finding
from ascend_vl.adaptations.seams import copies, functions, rotary, vision_attention
from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text

IDS = registry.ids()
NEWEST = MachineFacts(chip="310P3", cann="9.1.0", vllm_ascend="0.23.0.post1")


def stand(facts: MachineFacts, findings: dict[str, Finding] | None = None) -> dict[str, str]:
    return {outcome.id: outcome.state for outcome in expected(facts, findings)}


def finding(fault: bool | None) -> Finding:
    return Finding(fault, Text("found", "探测"), {"error": 0.5})


def test_a_cpu_needs_none():
    assert set(stand(MachineFacts()).values()) == {"not-applicable"}


def test_an_unknown_version_is_served_as_it_is():
    facts = replace(NEWEST, vllm_ascend="0.31.0")
    assert not known_stack(facts)
    assert set(stand(facts).values()) == {"not-applicable"}


@pytest.mark.parametrize(
    ("version", "applies"),
    [
        (
            "0.11.0",
            {"float16", "prefix-caching", "embedding-merge", "rotary-dtype", "vision-lengths", "vision-head-width"},
        ),
        ("0.18.0", {"float16", "rotary-dtype"}),
        ("0.23.0.post1", {"float16", "embedding-merge", "rotary-dtype"}),
        ("0.26.0rc1", {"float16", "embedding-merge", "rotary-dtype"}),
    ],
)
def test_what_is_in_force_on_310p_before_any_probe(version, applies):
    states = stand(MachineFacts(chip="310P3", vllm_ascend=version))
    assert {name for name, state in states.items() if state in ("active", "unprobed")} == applies


def test_910b_needs_neither_float16_nor_the_exact_kernel():
    states = stand(MachineFacts(chip="910B3", vllm_ascend="0.23.0.post1"))
    assert states["float16"] == states["vision-exact-kernel"] == "not-applicable"


@pytest.mark.parametrize(("fault", "state"), [(True, "active"), (False, "probed-fine"), (None, "unprobed")])
def test_the_probe_decides(fault, state):
    assert stand(NEWEST, {"index-put": finding(fault)})["embedding-merge"] == state


def test_a_fault_found_where_the_version_deals_with_it_changes_nothing():
    facts = replace(NEWEST, vllm_ascend="0.18.0")
    assert stand(facts, {"vision-head-width": finding(True)})["vision-head-width"] == "handled-upstream"


@pytest.mark.parametrize(("fault", "state"), [(True, "active"), (False, "probed-fine"), (None, "handled-upstream")])
def test_where_upstream_may_deal_with_it_the_probe_decides_too(fault, state):
    found = {} if fault is None else {"index-put": finding(fault)}
    assert stand(replace(NEWEST, vllm_ascend="0.18.0"), found)["embedding-merge"] == state


def test_the_user_has_the_last_word(monkeypatch):
    monkeypatch.setenv("ASCEND_VL_ADAPT", "+vision-lengths, -embedding-merge")
    states = stand(NEWEST, {"index-put": finding(True)})
    assert states["vision-lengths"] == "forced"
    assert states["embedding-merge"] == "suppressed"


@pytest.mark.parametrize(("text", "code"), [("rotary-dtype", "adaptation-sign"), ("+rotary", "adaptation-unknown")])
def test_what_cannot_be_read_is_refused_by_name(text, code):
    with pytest.raises(AscendVLError) as error:
        parse(text, IDS)
    assert error.value.code == code


def test_minus_wins_over_plus():
    assert parse("+rotary-dtype,-rotary-dtype", IDS).forced == frozenset()


def test_off_means_nothing(monkeypatch):
    monkeypatch.setenv("ASCEND_VL", "off")
    assert apply("construct", Model("0.18.0"), facts=NEWEST, findings={}) == []


def test_every_record_says_everything_in_both_languages():
    for record in registry.RECORDS:
        for text in (record.title, record.symptom, record.cause, record.cost, record.retire):
            assert text.en.strip() and text.zh.strip()
            assert text.en != text.zh
        assert record.evidence and record.seam
        assert record.phase in PHASES


@pytest.mark.parametrize("record", registry.RECORDS, ids=lambda record: record.id)
def test_none_acts_in_a_phase_that_is_not_its_own(machine, record):
    """Under the name of each other phase, the record is turned away; its seams turn it away too."""
    for phase in set(PHASES) - {record.phase}:
        with pytest.raises(WrongPhase), phase_of(record, phase):
            pass
    if record.phase in ("construct", "loaded"):
        other = replace(record, phase="process")
        with pytest.raises(WrongPhase), phase_of(other, "process"):
            use_seams(record)
        with pytest.raises(WrongPhase):
            use_seams(record)


def use_seams(record):
    model = Model("0.18.0")
    if record.id == "embedding-merge":
        return functions.rebind(use_seams, print, ("nowhere",))
    if record.id == "blocking-copies":
        return copies.make_blocking()
    if record.id == "rotary-dtype":
        return rotary.cast_back(vision_attention.blocks_of(model))
    return vision_attention.install(model)


def test_apply_calls_only_records_of_its_phase(machine, monkeypatch):
    acted = []
    records = tuple(
        replace(record, apply=lambda target, found, name=record.id: acted.append(name) or [])
        for record in registry.RECORDS
    )
    monkeypatch.setattr(registry, "RECORDS", records)
    monkeypatch.setenv("ASCEND_VL_ADAPT", ",".join(f"+{name}" for name in IDS))
    for phase in PHASES:
        acted.clear()
        apply(phase, Model("0.18.0"), facts=NEWEST, findings={})
        assert acted == [record.id for record in records if record.phase == phase]


def test_one_that_fails_is_reported_and_leaves_the_others_standing(machine, monkeypatch):
    def broken(target, found):
        raise OSError("no such place")

    records = tuple(
        replace(record, apply=broken) if record.id == "rotary-dtype" else record for record in registry.RECORDS
    )
    monkeypatch.setattr(registry, "RECORDS", records)
    monkeypatch.setenv("ASCEND_VL_ADAPT", "+rotary-dtype,+vision-lengths,-embedding-merge")
    states = {o.id: o.state for o in apply("construct", Model("0.18.0"), facts=NEWEST, findings={})}
    assert states["rotary-dtype"] == "failed"
    assert states["vision-lengths"] == "forced"


def test_the_report_lists_all_with_what_was_replaced(machine, monkeypatch):
    assert {line["state"] for line in report()} == {"pending"}
    monkeypatch.setenv("ASCEND_VL_ADAPT", "+rotary-dtype,-embedding-merge")
    apply("construct", Model("0.18.0"), facts=NEWEST, findings={})
    lines = {line["id"]: line for line in report()}
    assert list(lines) == [record.id for record in registry.RECORDS]
    assert lines["rotary-dtype"]["state"] == "forced"
    assert lines["rotary-dtype"]["replaced"][0]["name"] == "visual.blocks.0.attn.apply_rotary_emb"
    assert "towers.py:" in lines["rotary-dtype"]["replaced"][0]["original"]
    # Applied by the plan in another process; a worker says how it stands.
    assert lines["float16"]["state"] == "unprobed"
    assert lines["float16"]["replaced"] == []


def test_float16_leaves_a_choice_of_the_user_that_the_chip_has():
    for given, wanted in ((None, "float16"), ("auto", "float16"), ("bfloat16", "float16"), ("float32", "float32")):
        arguments = {} if given is None else {"dtype": given}
        apply("config", arguments, facts=NEWEST, findings={})
        assert arguments["dtype"] == wanted


def test_prefix_caching_is_off_on_310p_with_011_and_the_users_other_settings_stay():
    arguments = {"additional_config": {"torchair_graph_config": {"enabled": False}}}
    apply("config", arguments, facts=replace(NEWEST, vllm_ascend="0.11.0"), findings={})
    assert arguments["enable_prefix_caching"] is False
    assert arguments["additional_config"]["torchair_graph_config"] == {"enabled": False}
    assert arguments["additional_config"]["ascend_scheduler_config"] == {"enabled": True}
    untouched: dict[str, object] = {}
    apply("config", untouched, facts=NEWEST, findings={})
    assert "enable_prefix_caching" not in untouched


@pytest.mark.parametrize(
    ("version", "number"),
    [("0.23.0.post1", "0.23.0"), ("0.26.0rc1", "0.26.0"), ("0.11.0+empty", "0.11.0"), (None, None)],
)
def test_release(version, number):
    assert release(version) == number


def test_at_least_is_by_number():
    assert at_least("0.9.0", "0.18.0") is False
    assert at_least("0.18.0rc1", "0.18.0") is True
    assert at_least(None, "0.18.0") is None


def test_planning_imports_no_torch():
    code = (
        "import sys; from ascend_vl import adaptations, probes; from ascend_vl.probes import runner, registry;"
        "adaptations.expected(adaptations.MachineFacts(chip='310P3'));"
        "assert not {'torch', 'vllm', 'torch_npu', 'numpy'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
