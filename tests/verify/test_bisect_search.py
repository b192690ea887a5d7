"""The search itself, without an engine: what is found, in how few looks, and what is never looked at."""

import contextlib
import json
import math

import numpy as np
import pytest

from ascend_vl.errors import AscendVLError
from ascend_vl.verify import bisect, report
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
    assert bisect.errors_at(tmp_path / "p") == [0.1, 0.2]


@pytest.mark.parametrize("ours", [[[3.0]], [[3.0, float("nan")]], [[3.0, float("inf")]]])
def test_other_shapes_and_values_that_are_not_finite_have_no_error(tmp_path, ours):
    keep(tmp_path / "p", [[3.0, 4.0]], [[3.0, 4.0]], ours)
    assert bisect.errors_at(tmp_path / "p") == [0.0, None]


def test_a_bisection_is_reported_and_recomputed(tmp_path, invoice, make_run):
    out = tmp_path / "found"
    make_run("found/base", [invoice()])
    make_run("found/candidate", [invoice(token_ids=[1, 2, 3])])
    keep(out / "points" / "visual.blocks.0", [[3.0, 4.0]], [[3.0, 4.0]], [[3.0, 5.0]])
    step = {"point": "visual.blocks.0", "reference_error": 0.0, "engine_error": 0.2, "limit": 1e-5, "strays": True}
    finding = {
        **{"schema": 1, "verdict": "FAIL", "stage": "tower", "module": "visual.blocks.0", "operator": "rotary (X)"},
        **{"why": "<script>", "captures": 3, "case": "invoice", "dtype": "float32", "emulated": True},
        **{"steps": [step], "shapes": ["0: float16[1, 8]"], "cure": {"adaptation": "rotary-dtype", "confirmed": True}},
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
