"""A repeat that failed is what the next plan on this machine hears of, and nothing else is."""

import dataclasses

import pytest

from ascend_vl import probes
from ascend_vl.machine import Machine, describe
from ascend_vl.plan import Plan, Wishes, adapting, resolve
from ascend_vl.plan.model import known_model
from ascend_vl.verify import repeated_request
from ascend_vl.verify.runs import read_run


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ASCEND_VL_CACHE", str(tmp_path))


def here(version: str) -> Machine:
    """This machine, as if it had these chips."""
    return dataclasses.replace(describe(chip="300i-duo", vllm_ascend=version), described=False)


def planned(machine: Machine) -> Plan:
    model = known_model("qwen3-vl-8b")
    assert model is not None
    return resolve(model, Wishes(tensor_parallel_size=2), machine)


def caches(plan: Plan) -> bool:
    return "--no-enable-prefix-caching" not in plan.command


@pytest.mark.parametrize("version", ["0.18.0", "0.23.0.post1"])
def test_a_failed_repeat_stops_prefix_caching_here_until_one_passes_with_it_on(version):
    machine = here(version)
    plan = planned(machine)
    assert caches(plan)
    repeated_request.keep(plan, failed=False)
    assert caches(planned(machine))
    repeated_request.keep(plan, failed=True)
    without = planned(machine)
    assert not caches(without)
    assert "prefix-caching" in without.adaptations
    # With it off a repeat says nothing about it.
    repeated_request.keep(without, failed=False)
    assert not caches(planned(machine))
    assert caches(planned(dataclasses.replace(machine, driver="another")))


def test_a_described_machine_keeps_nothing(tmp_path):
    repeated_request.keep(planned(describe(chip="300i-duo", vllm_ascend="0.18.0")), failed=True)
    assert list(tmp_path.iterdir()) == []


def test_it_is_off_on_310p_with_011_from_the_start():
    assert not caches(planned(here("0.11.0")))


def test_the_finding_is_in_the_record_of_this_machine():
    plan = planned(here("0.18.0"))
    repeated_request.keep(plan, failed=True)
    shapes = adapting.shapes_of(plan.model, str(plan.value("dtype")), 2)
    finding = probes.cached(adapting.facts_of(plan.machine), shapes=shapes)["repeat-request"]
    assert finding.fault and finding.reason.zh


@pytest.mark.parametrize(
    ("repeats", "differs"),
    [([{"text": "same"}], False), ([{"text": "other"}], True), ([{"text": "other", "concurrent": True}], False)],
)
def test_only_the_request_by_itself_counts(make_run, invoice, repeats, differs):
    answer = invoice(identifier="picture", text="same")
    answer.repeats = repeats
    run = read_run(make_run("candidate", [answer]))
    assert repeated_request.differs(run, ["picture"]) == differs
    assert not repeated_request.differs(run, ["text"])
