"""The search itself, without an engine: what is found, in how few looks, and what is never looked at."""

import contextlib
import json
import math
import os
import types

import numpy as np
import pytest

from ascend_vl.adaptations.record import MachineFacts
from ascend_vl.errors import AscendVLError
from ascend_vl.verify import bisect, cures, looks, report
from ascend_vl.verify.cases import Case
from ascend_vl.verify.points_list import text_points, tower_points
from ascend_vl.verify.runs import read_run, write_json, write_manifest


@pytest.fixture
def search(tmp_path):
    return bisect.Search(tmp_path, tmp_path, Case("c", "?"), tmp_path / "cases.jsonl", tmp_path / "out", "float32")


@pytest.fixture
def halve(search, monkeypatch):
    """halve(points, first wrong index) -> (finding, places looked at)."""

    def run(points, first):
        looked = []

        def strays(search, server, reference, point):
            looked.append(point)
            return points.index(point) >= first

        monkeypatch.setattr(bisect, "_strays", strays)
        monkeypatch.setattr(bisect, "session", lambda *given: contextlib.nullcontext())
        monkeypatch.setattr(bisect, "_single", lambda search: None)
        monkeypatch.setattr(bisect, "_inside", lambda search, server, point: {"verdict": "FAIL", "operator": None})
        return bisect._halve(search, None, "tower", points), looked

    return run


def test_every_first_wrong_place_is_found_in_a_logarithm_of_looks(halve):
    for points in (tower_points(27, [8, 16, 24]), text_points(36)):
        for first in range(len(points)):
            finding, looked = halve(points, first)
            assert finding["module"] == points[first]
            # One look at the end, then halves; the case itself and the block's operators are two more.
            assert len(looked) + 2 <= math.ceil(math.log2(len(points))) + 6


def test_an_end_that_does_not_stray_is_inconclusive(halve):
    points = text_points(4)
    finding, looked = halve(points, len(points))
    assert finding["verdict"] == "INCONCLUSIVE"
    assert looked == ["logits"]


def test_the_places_of_a_deepstack_layer_end_at_its_merger():
    assert tower_points(27, [8, 16, 24], layer=1)[-3:] == [
        "visual.blocks.15",
        "visual.blocks.16",
        "visual.deepstack_merger_list.1",
    ]
    assert tower_points(2, [0])[-1] == "visual.merger"


def test_differences_before_the_model_are_named_without_any_look(search, invoice, make_run):
    base, candidate = invoice(), invoice()
    candidate.stages["grid"] = [[1, 8, 2]]
    runs = [read_run(make_run(name, [answer])) for name, answer in (("base", base), ("candidate", candidate))]
    case = bisect.comparison.compare(*runs, [])["cases"][0]
    finding = bisect._look(search, None, *runs, case)
    assert (finding["verdict"], finding["stage"], finding["module"]) == ("FAIL", "grid", None)


def test_equal_sides_pass_and_a_near_tie_passes_with_limitations(search, invoice, make_run):
    base, tied = invoice(), invoice(token_ids=[5, 6, 77, 8, 9])
    base.logprobs[2] = [(7, -0.6930), (77, -0.6931)]
    tied.logprobs[2] = [(77, -0.6930), (7, -0.6931)]
    a, b, same = (read_run(make_run(n, [x])) for n, x in (("a", base), ("b", tied), ("c", base)))
    verdicts = []
    for other in (same, b):
        case = bisect.comparison.compare(a, other, [])["cases"][0]
        verdicts.append(bisect._look(search, None, a, other, case)["verdict"])
    assert verdicts == ["PASS", "PASS WITH LIMITATIONS"]


def keep(place, exact, theirs, ours):
    place.parent.mkdir(parents=True, exist_ok=True)
    for suffix, value in ((".golden", exact), (".dtype", theirs), ("", ours)):
        np.save(f"{place}{suffix}.npy", np.array(value, dtype=np.float64))


def test_errors_are_relative_to_golden_and_padding_does_not_count(tmp_path):
    keep(tmp_path / "p", [[3.0, 4.0]], [[3.0, 4.5]], [[3.0, 5.0, 9.0], [8.0, 8.0, 8.0]])
    assert looks.errors_at(tmp_path / "p") == [0.1, 0.2]


@pytest.mark.parametrize("ours", [[[3.0]], [[3.0, float("nan")]], [[3.0, float("inf")]]])
def test_other_shapes_and_values_that_are_not_finite_have_no_error(tmp_path, ours):
    keep(tmp_path / "p", [[3.0, 4.0]], [[3.0, 4.0]], ours)
    assert looks.errors_at(tmp_path / "p") == [0.0, None]


def test_a_bisection_is_reported_and_recomputed(tmp_path, invoice, make_run):
    out = tmp_path / "found"
    make_run("found/base", [invoice()])
    make_run("found/candidate", [invoice(token_ids=[1, 2, 3])])
    keep(out / "points" / "visual.blocks.0", [[3.0, 4.0]], [[3.0, 4.0]], [[3.0, 5.0]])
    step = {"point": "visual.blocks.0", "reference_error": 0.0, "engine_error": 0.2, "limit": 1e-5, "strays": True}
    keep(out / "trials" / "rotary-dtype" / "visual.blocks.0", [[3.0, 4.0]], [[3.0, 4.0]], [[3.0, 4.0]])
    trial = {"trial": "rotary-dtype", "reference_error": 0.0, "engine_error": 0.0, "limit": 1e-5, "strays": False}
    finding = {
        **{"schema": 1, "verdict": "FAIL", "stage": "tower", "module": "visual.blocks.0", "operator": "rotary (X)"},
        **{
            "why": "<script>",
            "why_zh": "<script>",
            "captures": 3,
            "capture_limit": 7,
            "tensor_parallel": 1,
            "case": "invoice",
            "dtype": "float32",
            "emulated": True,
        },
        **{
            "steps": [step, trial],
            "shapes": ["0: float16[1, 8]"],
            "cure": {"adaptation": "rotary-dtype", "confirmed": True},
        },
    }
    write_json(out / "bisect.json", finding)
    write_manifest(out)
    report.write([out], tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "<script" not in page and "rotary-dtype" in page and "<polyline" in page
    cure = next(line for line in page.splitlines() if "rotary-dtype</td>" in line or "rotary-dtype " in line)
    assert "emulated: says nothing about hardware" in cure
    assert report.check(out) == [] and report.check(tmp_path / "r.html") == []
    keep(out / "points" / "visual.blocks.0", [[3.0, 4.0]], [[3.0, 4.0]], [[3.0, 4.1]])
    write_manifest(out)
    assert any("visual.blocks.0" in problem for problem in report.check(out))
    keep(out / "points" / "visual.blocks.0", [[3.0, 4.0]], [[3.0, 4.0]], [[3.0, 5.0]])
    keep(out / "trials" / "rotary-dtype" / "visual.blocks.0", [[3.0, 4.0]], [[3.0, 4.0]], [[3.0, 5.0]])
    write_manifest(out)
    assert any("rotary-dtype visual.blocks.0" in problem for problem in report.check(out))


def test_what_cannot_be_bisected_is_refused(tmp_path):
    for base, candidate in (("http://x", str(tmp_path)), (str(tmp_path), str(tmp_path))):
        with pytest.raises(AscendVLError) as caught:
            bisect.directories(base, candidate)
        assert caught.value.code == "bisect-targets"
    cases = tmp_path / "cases.jsonl"
    cases.write_text(json.dumps({"id": "a", "prompt": "x"}))
    with pytest.raises(AscendVLError) as caught:
        bisect.choose(cases, "b")
    assert caught.value.code == "case-unknown"


def test_a_place_strays_beyond_twice_the_reference_and_a_floor():
    assert not looks.judged("p", [1e-3, 2e-3], "float32")["strays"]
    assert looks.judged("p", [1e-3, 2.1e-3], "float32")["strays"]
    assert not looks.judged("p", [0.0, 1e-6], "float32")["strays"]
    assert looks.judged("p", [1e-3, None], "float32")["strays"]


def test_a_trial_forces_its_adaptation_even_where_the_user_suppressed_it(monkeypatch):
    monkeypatch.setenv("ASCEND_VL_ADAPT", "-vision-lengths, +float16")
    with cures.forced("vision-lengths"):
        assert os.environ["ASCEND_VL_ADAPT"] == "+float16,+vision-lengths"
    assert os.environ["ASCEND_VL_ADAPT"] == "-vision-lengths, +float16"
    monkeypatch.delenv("ASCEND_VL_ADAPT")
    with cures.forced("rotary-dtype"):
        assert os.environ["ASCEND_VL_ADAPT"] == "+rotary-dtype"
    assert "ASCEND_VL_ADAPT" not in os.environ


def test_what_is_in_force_already_is_not_tried_and_the_first_that_heals_is_named():
    states = {"vision-lengths": "handled-upstream", "vision-exact-kernel": "not-applicable"}
    newer, older = (MachineFacts(chip="310P3", vllm_ascend=version) for version in ("0.23.0.post1", "0.18.0"))
    assert "vision-exact-kernel" not in cures.untried("vision attention", states, older)
    names = cures.untried("vision attention", states, newer)
    assert names[:2] == ["vision-exact-kernel", "vision-operator"]
    tried = []

    def heals(name):
        tried.append(name)
        return name == "vision-operator"

    assert cures.first(names, heals) == "vision-operator"
    assert tried == names[:2]
    assert cures.first(names, lambda name: False) is None
    assert cures.untried("linear", {}, newer) == []


def looked(search, invoice, make_run, monkeypatch, change):
    """(finding, the search's look, points) for a candidate made by change(answer); the end of the search strays."""
    base, candidate = invoice("c"), invoice("c")
    candidate.stages["forced"] = {"token_ids": base.token_ids, "logprobs": [list(p) for p in base.logprobs]}
    change(candidate)
    a, b = (read_run(make_run(name, [answer])) for name, answer in (("a", base), ("b", candidate)))
    (search.base / "config.json").write_text(json.dumps({"text_config": {"num_hidden_layers": 2}}))
    seen = []

    def halve(search, server, stage, points):
        seen.append((stage, points[-1]))
        return {"verdict": "FAIL", "stage": stage, "module": points[0], "why": bisect.Text("x", "x")}

    monkeypatch.setattr(bisect, "_halve", halve)
    case = bisect.comparison.compare(a, b, [])["cases"][0]
    return bisect._look(search, None, a, b, case), search.look, seen


def test_a_difference_only_in_decode_steps_is_looked_at_in_that_step(search, invoice, make_run, monkeypatch):
    def change(answer):
        answer.logprobs[3] = [(8, -0.4), (9, -2.0)]

    finding, look, seen = looked(search, invoice, make_run, monkeypatch, change)
    assert (finding["stage"], finding["position"]) == ("decode", 3)
    assert (look.step, look.token_ids, look.text) == (3, (5, 6, 7), "")
    assert seen == [("decode", "logits")]


def test_a_difference_that_prefill_shows_too_is_looked_at_in_one_pass(search, invoice, make_run, monkeypatch):
    def change(answer):
        answer.logprobs[3] = [(8, -0.4), (9, -2.0)]
        answer.stages["forced"]["logprobs"][3] = [(8, -0.4), (9, -2.0)]

    finding, look, seen = looked(search, invoice, make_run, monkeypatch, change)
    assert finding["stage"] == "continuation" and "position" not in finding
    assert (look.step, look.token_ids) == (None, (5, 6, 7, 8))
    assert look.text.startswith("The total is 1024.50")
    assert seen == [("continuation", "language_model.norm")]


def test_rounding_that_the_reference_shows_too_is_no_fault(search, invoice, make_run, monkeypatch):
    def change(answer):
        answer.logprobs[0] = [(5, -0.4), (6, -2.0)]

    inconclusive = {"verdict": "INCONCLUSIVE", "stage": "logits", "module": None, "why": bisect.Text("x", "x")}
    monkeypatch.setattr(bisect, "_halve", lambda *given: dict(inconclusive))
    base, candidate = invoice(), invoice()
    change(candidate)
    runs = [read_run(make_run(name, [answer])) for name, answer in (("a", base), ("b", candidate))]
    (search.base / "config.json").write_text(json.dumps({"text_config": {"num_hidden_layers": 2}}))
    case = bisect.comparison.compare(*runs, [])["cases"][0]
    assert case["first_difference"] == "logits"
    assert bisect._look(search, None, *runs, case)["verdict"] == "PASS"
    case["fork"] = {"position": 0, "near_tie": False, "gap_nats": 2.0}
    assert bisect._look(search, None, *runs, case)["verdict"] == "INCONCLUSIVE"


def replayed(*kinds, verdict="PASS"):
    rows = [
        {"module": f"b.{kind}", "kind": kind, "operator": kind, "inputs": [], "verdict": verdict, "why": "x"}
        for kind in kinds
    ]
    return [{"rank": 0, "place": ".", "operators": rows, "weights": []}]


def test_a_block_is_cleared_only_when_all_of_it_was_seen():
    whole = "vision attention", "rotary", "linear", "layer norm", "gelu"
    assert bisect._blamed(replayed(*whole), [])["verdict"] == bisect.AMPLIFIED
    assert bisect._blamed(replayed(*whole[1:]), [])["verdict"] == "INCONCLUSIVE"
    assert bisect._blamed(replayed(*whole, verdict="INCONCLUSIVE"), [])["verdict"] == "INCONCLUSIVE"
    assert bisect._blamed(replayed(), [])["verdict"] == "INCONCLUSIVE"


@pytest.mark.parametrize(("decided", "verdict"), [(True, "INCONCLUSIVE"), (False, "PASS WITH LIMITATIONS")])
def test_a_block_that_amplifies_rounding_explains_no_other_answer(decided, verdict):
    found = {"verdict": bisect.AMPLIFIED, "module": "visual.blocks.1", "why": bisect.Text("x", "x")}
    assert bisect._settled(found, decided)["verdict"] == verdict
    named = {"verdict": "FAIL", "module": "visual.blocks.1", "why": bisect.Text("x", "x")}
    assert bisect._settled(named, decided) == named


def test_of_wrong_operators_the_furthest_outside_is_the_cause_and_a_wrong_weight_goes_before(tmp_path):
    def failed(kind, error, rank):
        row = {"module": f"b.{kind}", "kind": kind, "operator": kind, "inputs": ["0: float16[2]"], "verdict": "FAIL"}
        numbers = {"target_error": error, "reference_error": 1e-4, "limit": 1e-3, "why": kind, "why_zh": kind}
        return {"rank": rank, "place": str(tmp_path), "operators": [{**row, **numbers}], "weights": []}

    ranks = [failed("linear", 0.002, 0), failed("rotary", 0.9, 1)]
    found = bisect._blamed(ranks, [])
    assert (found["operator"], found["rank"], found["verdict"]) == ("rotary", 1, "FAIL")
    assert json.loads((tmp_path / "expected.json").read_text())["kind"] == "rotary"
    weight = bisect._blamed(ranks, [{"tensors": ["lm_head.weight"], "relative": 1.4}])
    assert weight["operator"] is None and "lm_head.weight" in weight["why"].en


@pytest.mark.parametrize(("failures", "healed"), [(0, True), (1, True), (2, False)])
def test_a_trial_whose_engine_did_not_start_is_tried_once_more(search, monkeypatch, failures, healed):
    search.facts = MachineFacts(chip="310P3", vllm_ascend="0.18.0")
    search.states = {"vision-lengths": "handled-upstream", "vision-head-width": "handled-upstream"}
    keep(search.out / "points" / "visual.blocks.0", [[3.0, 4.0]], [[3.0, 4.0]], [[9.0, 9.0]])
    started = []

    def engine(search):
        started.append(1)
        if len(started) <= failures:
            raise AscendVLError("server-failed", *[bisect.Text("x", "x")] * 3)
        return contextlib.nullcontext(types.SimpleNamespace(url="http://127.0.0.1:1", api_key=None))

    monkeypatch.setattr(bisect, "_engine", engine)
    monkeypatch.setattr(bisect.remote, "Server", lambda *given: None)
    monkeypatch.setattr(bisect.looks, "errors", lambda *given: [0.0, 0.0])
    cure = bisect._heal(search, {"module": "visual.blocks.0", "operator_kind": "vision attention"})
    assert (cure == {"adaptation": "vision-operator", "confirmed": True}) == healed
    assert len(started) == min(failures + 1, 2)
