"""Two recorded runs compared: metrics a case, the first stage that differs, how close each fork was, the verdict."""

import math
from collections.abc import Sequence
from typing import Any

from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text
from ascend_vl.verify import chain, fields, metrics, semantic
from ascend_vl.verify.alarms import degenerate
from ascend_vl.verify.requirements import METRICS, Requirement
from ascend_vl.verify.runs import Answer, Run, changed_files
from ascend_vl.verify.wording import words

SCHEMA = 1
# Embedding costs milliseconds a text; unasked, it is done up to this many characters.
EMBED_UNASKED = 40_000
NOT_APPLICABLE = "not applicable"


def compare(base: Run, candidate: Run, requirements: Sequence[Requirement]) -> dict[str, Any]:
    """The comparison's JSON: `cases`, `summary`, `required`, `verdict` and what explains them.

    Raises AscendVLError `embedder-missing` when similarity of meaning is required and cannot be measured, and
    `run-invalid` when a case declares key fields that cannot be read.
    """
    shared = [name for name in base.answers if name in candidate.answers]
    one_sided = {
        "only_in_base": [name for name in base.answers if name not in candidate.answers],
        "only_in_candidate": [name for name in candidate.answers if name not in base.answers],
    }
    scorer = _embedder(base, candidate, shared, requirements)
    similarities = _similarities(base, candidate, shared, scorer)
    cases = [_case(base, candidate, name, similarities) for name in shared]
    summary = {name: _summary(name, cases) for name in METRICS if name != "first_divergence"}
    agreement = {"base": self_agreement(base), "candidate": self_agreement(candidate)}
    ceiling = min((side["token_match"] for side in agreement.values() if side["token_match"] is not None), default=1.0)
    required = [_judge(requirement, cases, summary, ceiling) for requirement in requirements]
    asked_otherwise = [case["id"] for case in cases if case["chain"][0]["status"] == "differs"]
    changed = {side.name: changed_files(side.path) for side in (base, candidate) if not side.bare}
    complete = cases and not any(one_sided.values())
    good = all(item["passed"] for item in required) and complete and not asked_otherwise and not any(changed.values())
    return {
        "schema": SCHEMA,
        "base": _side(base),
        "candidate": _side(candidate),
        "embedder": {"name": scorer.name, "version": scorer.version} if scorer else None,
        "cases": cases,
        **one_sided,
        "asked_otherwise": asked_otherwise,
        "summary": summary,
        "required": required,
        "self_agreement": {**agreement, "ceiling": ceiling},
        "notes": _notes(base, candidate, changed),
        "emulated": base.emulated or candidate.emulated,
        "verdict": "pass" if good else "fail",
    }


def _side(run: Run) -> dict[str, Any]:
    keys = ("target", "kind", "dtype", "recorded", "model", "versions", "sampling", "statuses", "emulated")
    return {"name": run.name, "path": str(run.path), **{k: run.info[k] for k in keys if k in run.info}}


def _embedder(base: Run, candidate: Run, shared: list[str], requirements: Sequence[Requirement]) -> Any:
    required = any(requirement.metric == "semantic_similarity" for requirement in requirements)
    differing = [n for n in shared if base.answers[n].text != candidate.answers[n].text]
    characters = sum(len(base.answers[n].text) + len(candidate.answers[n].text) for n in differing)
    if not required and characters > EMBED_UNASKED:
        return None
    semantic.require(requirements)
    return semantic.embedder()


def _similarities(base: Run, candidate: Run, shared: list[str], scorer: Any) -> dict[str, float]:
    if scorer is None:
        return {}
    scores = scorer.similarities([(base.answers[n].text, candidate.answers[n].text) for n in shared])
    return dict(zip(shared, scores, strict=True))


def _case(base: Run, candidate: Run, name: str, similarities: dict[str, float]) -> dict[str, Any]:
    a, b = base.answers[name], candidate.answers[name]
    values: dict[str, float | int | None] = dict.fromkeys(METRICS)
    reasons: dict[str, Text] = {}
    if a.token_ids is not None and b.token_ids is not None:
        values |= _token_metrics(a.token_ids, b.token_ids)
        if values["length_ratio"] is None:
            reasons["length_ratio"] = Text("not measured: the base has no tokens", "未测：基准没有词元")
        if values["first_divergence"] is None:
            reasons["first_divergence"] = Text("the token ids are equal", "词元 id 相同")
    else:
        lacking = [
            _missing(side, answer) for side, answer in (("base", a), ("candidate", b)) if answer.token_ids is None
        ]
        why = Text(
            f"not measured: {'; '.join(text.en for text in lacking)}", f"未测：{'；'.join(text.zh for text in lacking)}"
        )
        reasons |= dict.fromkeys(("token_match", "prefix_match", "first_divergence", "length_ratio"), why)
    values["text_similarity"] = metrics.text_similarity(a.text, b.text)
    values["numbers_match"], numbers = _numbers(a.text, b.text)
    values["semantic_similarity"] = similarities.get(name)
    if values["semantic_similarity"] is None:
        missing = words("not asked for") if semantic.installed() else semantic.MISSING
        reasons["semantic_similarity"] = Text(f"not measured: {missing.en}", f"未测：{missing.zh}")
    values["key_fields"], why_not, stated = _key_fields(base, candidate, name)
    if why_not:
        reasons["key_fields"] = why_not
    return {
        "id": name,
        "metrics": values,
        "reasons": {metric: why.en for metric, why in reasons.items()},
        "reasons_zh": {metric: why.zh for metric, why in reasons.items()},
        "numbers": numbers,
        "key_fields": stated,
        **chain.walk(base, candidate, name),
        "degenerate": {"base": degenerate(a.text, a.token_ids), "candidate": degenerate(b.text, b.token_ids)},
    }


def _token_metrics(base: list[int], candidate: list[int]) -> dict[str, float | int | None]:
    return {
        "token_match": metrics.token_match(base, candidate),
        "prefix_match": metrics.prefix_match(base, candidate),
        "first_divergence": metrics.first_divergence(base, candidate),
        "length_ratio": metrics.length_ratio(base, candidate),
    }


def _missing(side: str, answer: Answer) -> Text:
    why = words(answer.missing.get("token_ids", "none recorded"))
    return Text(f"{side} has no token ids ({why.en})", f"{words(side).zh}没有词元 id（{why.zh}）")


def _numbers(base: str, candidate: str) -> tuple[float, dict[str, Any] | None]:
    """(numbers_match, where the two lists part: index and up to four quantities of each side from there)."""
    if base == candidate:
        return 1.0, None
    lists = [[str(q) for q in metrics.quantities(text)] for text in (base, candidate)]
    if (at := metrics.first_divergence(*lists)) is None:
        return 1.0, None
    same_set = sorted(lists[0]) == sorted(lists[1])
    return 0.0, {"at": at, "base": lists[0][at : at + 4], "candidate": lists[1][at : at + 4], "only_order": same_set}


def _key_fields(base: Run, candidate: Run, name: str) -> tuple[float | None, Text | None, dict[str, Any] | None]:
    """(Jaccard, reason when None, what each side states)."""
    case = base.cases.get(name) or candidate.cases.get(name) or {}
    try:
        wanted = fields.declared(case.get("key_fields"))
    except ValueError as error:
        raise AscendVLError(
            "key-fields-invalid",
            Text(f"The key fields of case {name!r} cannot be read.", f"无法读取用例 {name!r} 的关键字段声明。"),
            Text(str(error), str(error)),
            Text("See docs/en/verify.md.", "见 docs/zh/verify.md。"),
        ) from None
    sides = {"base": base.answers[name], "candidate": candidate.answers[name]}
    if not wanted and all(answer.fields is None for answer in sides.values()):
        return None, Text(f"{NOT_APPLICABLE}: no key fields are declared", "不适用：未声明关键字段"), None
    stated: dict[str, dict[str, Any]] = {}
    for side, answer in sides.items():
        if answer.fields is None and not wanted:
            why = Text(
                f"not measured: {side} has no fields and the case declares none to read",
                f"未测：{words(side).zh}没有字段，用例也未声明",
            )
            return None, why, None
        stated[side] = answer.fields if answer.fields is not None else fields.read_fields(answer.text, wanted)
    score = metrics.jaccard(*(fields.pairs(stated[side], wanted) for side in ("base", "candidate")))
    if score is not None:
        return score, None, stated
    why = Text(f"{NOT_APPLICABLE}: neither answer states a key field", "不适用：两侧回答都没有给出关键字段")
    return None, why, stated


def _summary(name: str, cases: list[dict[str, Any]]) -> dict[str, Any]:
    measured = [case["metrics"][name] for case in cases if case["metrics"][name] is not None]
    not_applicable = sum(_not_applicable(case, name) for case in cases)
    return {
        "mean": math.fsum(measured) / len(measured) if measured else None,
        "min": min(measured) if measured else None,
        "max": max(measured) if measured else None,
        "measured": len(measured),
        "not_measured": len(cases) - len(measured) - not_applicable,
        "not_applicable": not_applicable,
    }


def _not_applicable(case: dict[str, Any], metric: str) -> bool:
    return str(case["reasons"].get(metric, "")).startswith(NOT_APPLICABLE)


def _notes(base: Run, candidate: Run, changed: dict[str, list[str]]) -> list[dict[str, str]]:
    """What a reader must know before the numbers, in both languages."""
    notes = []
    dtypes = base.info.get("dtype"), candidate.info.get("dtype")
    if all(dtypes) and dtypes[0] != dtypes[1]:
        text = Text(
            f"two dtypes are compared: {dtypes[0]} against {dtypes[1]}; rounding alone can part the answers",
            f"比较的是两种数据类型：{dtypes[0]} 与 {dtypes[1]}；仅舍入误差就可能使回答不同",
        )
        notes.append(text._asdict())
    for name, files in changed.items():
        if files:
            text = Text(
                f"{name}: changed since it was recorded, so nothing passes: {', '.join(files[:5])}",
                f"{name}：记录之后被修改，因此不能判为通过：{'、'.join(files[:5])}",
            )
            notes.append(text._asdict())
    return notes


def _judge(
    requirement: Requirement, cases: list[dict[str, Any]], summary: dict[str, Any], ceiling: float
) -> dict[str, Any]:
    name, totals = requirement.metric, summary[requirement.metric]
    record = {**requirement.to_json(), "mean": totals["mean"], "min": totals["min"]}

    def judged(passed: bool, why: Text | None = None, failed: Sequence[str] = ()) -> dict[str, Any]:
        return {
            **record,
            "failed_cases": list(failed),
            "why": why.en if why else None,
            "why_zh": why.zh if why else None,
            "passed": passed,
        }

    unmeasured = [c["id"] for c in cases if c["metrics"][name] is None and not _not_applicable(c, name)]
    if unmeasured:
        return judged(False, Text("not measured in every case", "并非所有用例都已测"), unmeasured)
    if not cases:
        return judged(False, Text("there is no case to judge", "没有可判断的用例"))
    if not totals["measured"]:
        return judged(requirement.optional, Text("not applicable in any case", "对所有用例均不适用"))
    # A side that does not agree with itself cannot agree with another: named, and no reason to ask for less.
    own = Text("", "")
    if name == "token_match" and ceiling < requirement.low:
        own = Text(f"; a side agrees with itself only to {ceiling:.4f}", f"；有一侧的自身一致性仅为 {ceiling:.4f}")
    if requirement.mean:
        passed = requirement.met_by(totals["mean"])
        return judged(passed, None if passed else Text(f"the mean is outside{own.en}", f"均值不满足{own.zh}"))
    failed = [c["id"] for c in cases if c["metrics"][name] is not None and not requirement.met_by(c["metrics"][name])]
    why = Text(f"a case is outside{own.en}", f"有用例不满足{own.zh}") if failed else None
    return judged(not failed, why, failed)


def self_agreement(run: Run) -> dict[str, Any]:
    """How well a side agrees with itself on the same request: the ceiling of any agreement with another.

    {"repeats": number of further answers, "token_match": lowest, "differing": case ids}; null without repeats.
    """
    scores: list[float] = []
    differing = []
    for name, answer in run.answers.items():
        for again in answer.repeats:
            token_ids = again.get("token_ids")
            if answer.token_ids is not None and token_ids is not None:
                score = metrics.token_match(answer.token_ids, token_ids)
            else:
                score = metrics.text_similarity(answer.text, again["text"])
            scores.append(score)
            if score < 1 and name not in differing:
                differing.append(name)
    return {"repeats": len(scores), "token_match": min(scores) if scores else None, "differing": differing}
