"""What `compare` decides on whole runs, and what it says about the first difference."""

import pytest

from ascend_vl.errors import AscendVLError
from ascend_vl.verify import requirements
from ascend_vl.verify.comparison import compare
from ascend_vl.verify.runs import read_run


def judge(base, candidate, *rules):
    chosen = requirements.parse(rules) if rules else requirements.of_recipe("default")
    return compare(read_run(base), read_run(candidate), chosen)


def only(result):
    return result["cases"][0]


def test_equal_runs_pass_and_no_stage_differs(invoice, make_run):
    result = judge(make_run("a", [invoice()]), make_run("b", [invoice()]))
    assert result["verdict"] == "pass"
    assert only(result)["first_difference"] is None
    assert only(result)["metrics"]["token_match"] == 1


def test_one_digit_changed_fails_on_the_number(invoice, make_run):
    changed = invoice(text="The total is 1042.50 due 2024-05-01.")
    result = judge(make_run("a", [invoice()]), make_run("b", [changed]))
    assert result["verdict"] == "fail"
    assert only(result)["metrics"]["numbers_match"] == 0
    assert only(result)["numbers"] == {
        "at": 0,
        "base": ["1024.5", "2024-05-01"],
        "candidate": ["1042.5", "2024-05-01"],
        "only_order": False,
    }


def test_the_port_recipe_passes_a_wrong_amount_that_ours_fails(invoice, make_run):
    words = (
        "这是一张发票，开票方为海港贸易公司，购买方为柏林办事处，货物包括纸张、墨水和信封，合计金额{}元，"
        "请在收到货物后通过银行转账支付，账号印在页面底部。货物在付清之前仍归卖方所有，如有异议请以书面形式提出。"
    )
    ids = list(range(100, 140))
    base = make_run("a", [invoice(text=words.format("1024.50"), token_ids=ids)])
    candidate = make_run("b", [invoice(text=words.format("1042.50"), token_ids=[*ids[:20], 7, *ids[21:]])])
    port = compare(read_run(base), read_run(candidate), requirements.of_recipe("port"))
    ours = compare(read_run(base), read_run(candidate), requirements.of_recipe("default"))
    assert port["summary"]["semantic_similarity"]["mean"] >= 0.95
    assert (port["verdict"], ours["verdict"]) == ("pass", "fail")


def test_a_swapped_picture_is_blamed_on_the_picture_and_nothing_after_it(invoice, make_run):
    swapped = invoice(text="A blue star.", token_ids=[1, 2, 3])
    swapped.stages["image_bytes"] = ["f" * 64]
    swapped.stages["grid"] = [[1, 6, 6]]
    case = only(judge(make_run("a", [invoice()]), make_run("b", [swapped])))
    assert case["first_difference"] == "image_bytes"
    assert [e["status"] for e in case["chain"] if e["stage"] in ("grid", "prompt_ids", "logits")] == ["not judged"] * 3


def test_runs_that_asked_different_things_fail(invoice, make_run):
    result = judge(make_run("a", [invoice()]), make_run("b", [invoice()], prompt="Something else"))
    assert result["verdict"] == "fail"
    assert result["asked_otherwise"] == ["invoice"]


def test_a_case_on_one_side_only_fails(invoice, make_run):
    result = judge(make_run("a", [invoice(), invoice("second")]), make_run("b", [invoice()]))
    assert (result["verdict"], result["only_in_base"]) == ("fail", ["second"])
    assert judge(make_run("c", [invoice()]), make_run("d", [invoice(), invoice("x")]))["verdict"] == "fail"


def test_no_case_in_common_is_not_a_pass(make_lines):
    result = judge(make_lines("a", [{"id": "1", "text": ""}]), make_lines("b", [{"id": "2", "text": ""}]))
    assert result["verdict"] == "fail"


def test_bare_lines_are_compared_as_far_as_they_go(make_lines):
    base = make_lines("a", [{"id": "1", "text": "5 kg"}])
    result = judge(base, make_lines("b", [{"id": "1", "text": "5 kg"}]), "text_similarity=1", "numbers_match=1")
    assert result["verdict"] == "pass"
    assert only(result)["metrics"]["token_match"] is None
    assert only(result)["reasons"]["token_match"].startswith("not measured: base has no token ids")
    assert only(result)["metrics"]["key_fields"] is None


def test_a_required_metric_that_is_not_measured_fails(make_lines):
    lines = [{"id": "1", "text": "same"}]
    result = judge(make_lines("a", lines), make_lines("b", lines), "token_match=0")
    assert result["verdict"] == "fail"
    assert result["required"][0]["why"] == "not measured in every case"


def test_fields_of_bare_lines(make_lines):
    base = make_lines("a", [{"id": "1", "text": "x", "fields": {"total": 1024.5, "who": "A"}}])
    other = make_lines("b", [{"id": "1", "text": "x", "fields": {"total": 1042.5, "who": "A"}}])
    result = judge(base, other, "key_fields=0.5")
    assert only(result)["metrics"]["key_fields"] == 1 / 3
    assert result["verdict"] == "fail"


def test_key_fields_that_nobody_declares_are_not_applicable_and_never_one(invoice, make_run):
    a, b = make_run("a", [invoice()]), make_run("b", [invoice()])
    assert only(judge(a, b))["metrics"]["key_fields"] is None
    assert judge(a, b)["summary"]["key_fields"]["not_applicable"] == 1
    assert judge(a, b)["verdict"] == "pass"
    # Asked for by name, they must be there.
    assert judge(a, b, "key_fields=1")["verdict"] == "fail"


def test_declared_key_fields_are_read_from_both_answers(invoice, make_run):
    declared = {"total": {"type": "number", "pattern": r"total is (\S+)"}}
    base = make_run("a", [invoice()], key_fields=declared)
    case = only(judge(base, make_run("b", [invoice(text="The total is 1,024.5 now")], key_fields=declared)))
    assert case["metrics"]["key_fields"] == 1
    case = only(judge(base, make_run("c", [invoice(text="The total is unknown")], key_fields=declared)))
    assert case["metrics"]["key_fields"] == 0


@pytest.mark.parametrize(("rule", "verdict"), [("token_match=0.8", "pass"), ("token_match=0.81", "fail")])
def test_equality_passes(invoice, make_run, rule, verdict):
    candidate = invoice(token_ids=[5, 6, 7, 8, 99])  # 4 of 5
    assert judge(make_run("a", [invoice()]), make_run("b", [candidate]), rule)["verdict"] == verdict


def test_every_case_against_the_mean(invoice, make_run):
    base = make_run("a", [invoice("x"), invoice("y")])
    candidate = make_run("b", [invoice("x"), invoice("y", token_ids=[5, 6, 7, 1, 2])])  # 1 and 0.6
    assert judge(base, candidate, "token_match.mean=0.8")["verdict"] == "pass"
    result = judge(base, candidate, "token_match=0.8")
    assert (result["verdict"], result["required"][0]["failed_cases"]) == ("fail", ["y"])


@pytest.mark.parametrize(("rule", "verdict"), [("length_ratio=0.5..2", "pass"), ("length_ratio=0.5..1.5", "fail")])
def test_a_range_flags_both_sides(invoice, make_run, rule, verdict):
    candidate = invoice(token_ids=list(range(10)))
    assert judge(make_run("a", [invoice()]), make_run("b", [candidate]), rule)["verdict"] == verdict


def test_a_fork_says_how_close_it_was(invoice, make_run):
    base, candidate = invoice(), invoice(token_ids=[5, 6, 77, 8, 9])
    base.logprobs[2] = [(7, -0.6930), (77, -0.6933)]
    candidate.logprobs[2] = [(77, -0.6930), (7, -0.6935)]
    fork = only(judge(make_run("a", [base]), make_run("b", [candidate])))["fork"]
    assert (fork["position"], fork["near_tie"]) == (2, True)
    assert fork["gap_nats"] == pytest.approx(0.0005)


def test_a_decided_fork_is_no_tie(invoice, make_run):
    base, candidate = invoice(), invoice(token_ids=[5, 6, 77, 8, 9])
    base.logprobs[2] = [(7, -0.1), (77, -3.1)]
    candidate.logprobs[2] = [(77, -0.1), (7, -3.1)]
    fork = only(judge(make_run("a", [base]), make_run("b", [candidate])))["fork"]
    assert (fork["near_tie"], round(fork["gap_nats"], 6)) == (False, 3.0)


def test_forced_positions_show_what_one_harmless_fork_would_hide(invoice, make_run):
    base = invoice()
    candidate = invoice(token_ids=[99, 98, 97])
    listed = [[(token, -0.1), (token + 1, -2.5)] for token in base.token_ids]
    listed[3] = [(500, -0.1), (base.token_ids[3], -4.1)]
    candidate.stages["forced"] = {"token_ids": base.token_ids, "logprobs": listed}
    forced = only(judge(make_run("a", [base]), make_run("b", [candidate])))["forced"]
    assert (forced["positions"], [d["position"] for d in forced["disagreeing"]]) == (5, [3])


def test_own_disagreement_is_the_ceiling_and_named(invoice, make_run):
    wavering = invoice(repeats=[{"text": "x", "token_ids": [5, 6, 7, 1, 2]}])
    result = judge(make_run("a", [invoice()]), make_run("b", [wavering]))
    assert result["self_agreement"]["candidate"] == {"repeats": 1, "token_match": 0.6, "differing": ["invoice"]}
    assert result["self_agreement"]["base"]["token_match"] is None
    assert result["self_agreement"]["ceiling"] == 0.6


def test_two_dtypes_are_said_to_be_two(invoice, make_run):
    base, candidate = make_run("a", [invoice()]), make_run("b", [invoice()], dtype="float16")
    assert "float32 against float16" in judge(base, candidate)["notes"][0]["en"]
    assert judge(base, base)["notes"] == []


def test_a_run_edited_after_it_was_recorded_is_said_to_be(invoice, make_run):
    base, candidate = make_run("a", [invoice()]), make_run("b", [invoice()])
    answers = candidate / "answers.jsonl"
    answers.write_text(answers.read_text() + " \n")
    assert "answers.jsonl" in judge(base, candidate)["notes"][0]["en"]


def test_a_broken_answer_is_flagged(invoice, make_run):
    result = judge(make_run("a", [invoice()]), make_run("b", [invoice(text="!!!!!!!!!!!!", token_ids=[0] * 12)]))
    assert only(result)["degenerate"] == {"base": [], "candidate": ["zero_run"]}


@pytest.mark.parametrize(
    "rule",
    [
        "token_match",
        "tokens=1",
        "token_match=x",
        "token_match=nan",
        "token_match=1.2",
        "length_ratio=2..1",
        "=1",
        "first_divergence=3",
    ],
)
def test_requirements_that_make_no_sense_are_refused(rule):
    with pytest.raises(AscendVLError) as caught:
        requirements.parse([rule])
    assert (caught.value.code, caught.value.exit_code) == ("requirement-invalid", 2)


def test_a_missing_embedder_is_no_verdict(invoice, make_run, monkeypatch):
    from ascend_vl.verify import semantic

    monkeypatch.setattr(semantic, "MODULE", "no_such_embedder")
    a, b = make_run("a", [invoice()]), make_run("b", [invoice()])
    with pytest.raises(AscendVLError) as caught:
        compare(read_run(a), read_run(b), requirements.of_recipe("port"))
    assert (caught.value.code, caught.value.exit_code) == ("embedder-missing", 2)
    case = only(judge(a, b))
    assert case["metrics"]["semantic_similarity"] is None
    assert "not installed" in case["reasons"]["semantic_similarity"]


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ("not json\n", "jsonl-invalid"),
        ("[1]\n", "jsonl-invalid"),
        ('{"id": "a"}\n', "run-invalid"),
        ('{"text": "a"}\n', "run-invalid"),
        ('{"id": "a", "text": "x", "token_ids": [-1]}\n', "run-invalid"),
        ('{"id": "a", "text": "x", "token_ids": ["5"]}\n', "run-invalid"),
        ('{"id": "a", "text": "x"}\n{"id": "a", "text": "y"}\n', "run-invalid"),
        ("", "run-invalid"),
    ],
)
def test_bad_answers_are_refused_by_name(tmp_path, lines, code):
    path = tmp_path / "bad.jsonl"
    path.write_text(lines)
    with pytest.raises(AscendVLError) as caught:
        read_run(path)
    assert (caught.value.code, caught.value.exit_code) == (code, 2)


def test_every_reason_stands_in_both_languages(invoice, make_run, make_lines):
    changed = invoice(token_ids=[5, 6, 77, 8, 9])
    changed.stages["grid"] = [[1, 8, 2]]
    lines = make_lines("bare", [{"id": "invoice", "text": "1024.50"}])
    for other in (make_run("b", [changed]), lines):
        result = judge(make_run(f"a-{other.name}", [invoice()]), other)
        case = only(result)
        pairs = [(entry["detail"], entry["detail_zh"]) for entry in case["chain"]]
        pairs += [(why, case["reasons_zh"][name]) for name, why in case["reasons"].items()]
        pairs += [(item["why"], item["why_zh"]) for item in result["required"]]
        said = [pair for pair in pairs if pair[0]]
        assert len(said) >= 4
        for english, chinese in said:
            assert english.isascii() and any("\u4e00" <= c <= "\u9fff" for c in chinese), (english, chinese)


@pytest.mark.parametrize(("shift", "status"), [(0.0, "same"), (5e-4, "within"), (0.2, "differs")])
def test_decode_steps_are_compared_as_far_as_both_sides_said_the_same(invoice, make_run, shift, status):
    base, other = invoice(), invoice(token_ids=[5, 6, 7, 88, 9])
    other.logprobs[:3] = [list(listed) for listed in base.logprobs[:3]]
    other.logprobs[2] = [(7, -0.1 - shift), (8, -2.5)]
    # Position 3 is reached by the same tokens and chooses otherwise; what follows it is not comparable.
    other.logprobs[3] = [(88, -0.7), (8, -0.1)]
    other.logprobs[4] = [(9, -5.0), (10, -0.1)]
    case = only(judge(make_run("a", [base]), make_run("b", [other])))
    entry = next(entry for entry in case["chain"] if entry["stage"] == "decode")
    assert entry["status"] == status, entry
    assert entry.get("position") == (2 if status == "differs" else None)


def test_unrelated_answers_are_not_similar_in_meaning(invoice, make_run):
    other = invoice(text="A small dog sleeps under the old tree.")
    case = only(judge(make_run("a", [invoice()]), make_run("b", [other])))
    assert case["metrics"]["semantic_similarity"] < 0.5


@pytest.mark.parametrize(
    ("scale", "status"), [(1.0, "same"), (1 + 1e-5, "within"), (1.01, "differs"), (float("nan"), "differs")]
)
def test_features_are_compared_by_the_table_of_tolerances(invoice, make_run, scale, status):
    import numpy as np

    from ascend_vl.verify.summaries import summary

    values = np.random.default_rng(0).normal(size=(8, 16)).astype(np.float32)
    sides = []
    for name, factor in (("a", 1.0), ("b", scale)):
        answer = invoice()
        tower = {"name": "image 0: features", **summary((values * np.float32(factor)), "float32")}
        answer.stages["tower"] = [tower]
        sides.append(make_run(name, [answer]))
    case = only(judge(*sides))
    assert next(entry["status"] for entry in case["chain"] if entry["stage"] == "tower") == status
    assert case["first_difference"] == ("tower" if status == "differs" else None)


def test_a_mean_below_its_requirement_fails(invoice, make_run):
    base = make_run("a", [invoice(), invoice("second")])
    half = make_run("b", [invoice(), invoice("second", token_ids=[1, 2, 3, 4, 99])])
    # LCS of 5 6 7 8 9 and 1 2 3 4 99 is nothing: the mean is one half.
    assert judge(base, half, "token_match.mean=0.5")["verdict"] == "pass"
    assert judge(base, half, "token_match.mean=0.51")["verdict"] == "fail"
