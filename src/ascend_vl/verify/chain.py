"""The way from a picture to an answer, walked stage by stage until the first that differs between two runs.

Nothing after the first difference is blamed. A stage that one side could not show is passed over and named.
"""

import math
from typing import Any

from ascend_vl.language import Text
from ascend_vl.verify import metrics, tolerances
from ascend_vl.verify.runs import Answer, Run
from ascend_vl.verify.summaries import relative_difference
from ascend_vl.verify.wording import words

STAGES = ("request", "image_bytes", "grid", "pixel_values", "prompt_ids", "tower", "logits", "decode", "text")


def walk(base: Run, candidate: Run, name: str) -> dict[str, Any]:
    """{"first_difference": stage or None, "chain": one entry a stage, "fork": how close, "forced": every position}."""
    a, b = base.answers[name], candidate.answers[name]
    dtype = tolerances.coarser(base.info.get("dtype"), candidate.info.get("dtype"))
    entries = [_request(base.cases.get(name), candidate.cases.get(name))]
    entries += [_exact(stage, a, b) for stage in ("image_bytes", "grid")]
    entries.append(_tensors("pixel_values", a, b, dtype))
    entries += [_exact("prompt_ids", a, b), _tensors("tower", a, b, dtype)]
    entries += [_logits(a, b, dtype), _decode(a, b, dtype), _text(a, b)]
    first = next((entry["stage"] for entry in entries if entry["status"] == "differs"), None)
    if first:
        for entry in entries[STAGES.index(first) + 1 :]:
            if entry["stage"] != "text":
                why = Text(f"{first} differs already", f"{words(first).zh}已不同")
                entry |= {"status": "not judged", "detail": why.en, "detail_zh": why.zh}
    return {"first_difference": first, "chain": entries, "fork": fork(a, b, dtype), "forced": forced(a, b, dtype)}


def _entry(stage: str, status: str, detail: Text = Text("", "")) -> dict[str, Any]:
    return {"stage": stage, "status": status, "detail": detail.en, "detail_zh": detail.zh}


def _request(base: dict[str, Any] | None, candidate: dict[str, Any] | None) -> dict[str, Any]:
    if base is None or candidate is None:
        return _entry("request", "not seen", Text("a side does not record its questions", "有一侧未记录问题"))
    for key in ("prompt", "max_tokens"):
        if base.get(key) != candidate.get(key):
            return _entry("request", "differs", Text(f"{key} is not the same", f"{key} 不同"))
    pictures = [[image.get("sha256") for image in side.get("images", [])] for side in (base, candidate)]
    if pictures[0] != pictures[1]:
        return _entry("request", "differs", Text("the picture files are not the same", "图片文件不同"))
    return _entry("request", "same")


def _unseen(stage: str, a: Answer, b: Answer) -> dict[str, Any] | None:
    """The entry for a stage that a side could not show, or that has no picture to be seen in."""
    for side, answer in (("base", a), ("candidate", b)):
        if answer.stages.get(stage) is None:
            return _entry(stage, "not seen", _missing(side, answer.missing.get(stage, "not recorded")))
    return None


def _missing(side: str, why: str) -> Text:
    return Text(f"{side}: {words(why).en}", f"{words(side).zh}：{words(why).zh}")


def _exact(stage: str, a: Answer, b: Answer) -> dict[str, Any]:
    if unseen := _unseen(stage, a, b):
        return unseen
    base, candidate = a.stages[stage], b.stages[stage]
    if base == candidate:
        return _entry(stage, "same")
    if len(base) != len(candidate):
        return _entry(stage, "differs", _counts(len(base), len(candidate), Text("entries", "项")))
    at = next(i for i, (x, y) in enumerate(zip(base, candidate, strict=True)) if x != y)
    ours, theirs = str(base[at])[:24], str(candidate[at])[:24]
    return _entry(stage, "differs", Text(f"at {at}: {ours} against {theirs}", f"位置 {at}：{ours} 对 {theirs}"))


def _counts(base: int, candidate: int, what: Text) -> Text:
    return Text(f"{base} against {candidate} {what.en}", f"{base} {what.zh}对 {candidate} {what.zh}")


def _tensors(stage: str, a: Answer, b: Answer, dtype: str) -> dict[str, Any]:
    """Lists of tensor summaries, compared in order; each must be equal or within the table's tolerance."""
    if unseen := _unseen(stage, a, b):
        return unseen
    base, candidate = a.stages[stage], b.stages[stage]
    if len(base) != len(candidate):
        return _entry(stage, "differs", _counts(len(base), len(candidate), Text("tensors", "个张量")))
    same_dtype = all(x["dtype"] == y["dtype"] for x, y in zip(base, candidate, strict=True))
    if stage == "pixel_values":
        # Rescale, subtract, divide in float32, in either order: up to four roundings a side; then one into the dtype,
        # which turns them into a whole unit of it wherever they fall on its edge.
        limit = 8 * tolerances.UNIT["float32"] if same_dtype and dtype == "float32" else 2 * tolerances.UNIT[dtype]
    else:
        limit = tolerances.FEATURES[dtype]
    worst, at = 0.0, 0
    for index, (x, y) in enumerate(zip(base, candidate, strict=True)):
        difference = relative_difference(x, y)
        if difference > worst:
            worst, at = difference, index
    if worst == 0:
        return _entry(stage, "same", Text("bit for bit", "逐位相同"))
    shapes = Text("", "")
    if math.isinf(worst):
        pair = base[at]["shape"], candidate[at]["shape"]
        shapes = Text(f", shapes {pair[0]} and {pair[1]}", f"，形状 {pair[0]} 与 {pair[1]}")
    detail = Text(
        f"relative difference {worst:.2e} (tensor {at}{shapes.en}), limit {limit:.1e} at {dtype}",
        f"相对差异 {worst:.2e}（张量 {at}{shapes.zh}），{dtype} 限值 {limit:.1e}",
    )
    return _entry(stage, "within" if worst <= limit else "differs", detail)


def _logits(a: Answer, b: Answer, dtype: str) -> dict[str, Any]:
    """The first token's distribution: the best token equal or a near tie, shared tokens within tolerance."""
    for side, answer in (("base", a), ("candidate", b)):
        if not answer.logprobs:
            return _entry("logits", "not seen", _missing(side, answer.missing.get("logprobs", "no log probabilities")))
    assert a.logprobs and b.logprobs
    difference = largest_difference(a.logprobs[0], b.logprobs[0])
    limit = tolerances.LOGPROB[dtype]
    gap = gap_at(a.logprobs[0], b.logprobs[0], a.logprobs[0][0][0], b.logprobs[0][0][0])
    tie = gap is not None and gap <= tolerances.NEAR_TIE[dtype]
    detail = Text(
        f"largest difference {difference:.2e} nats, limit {limit:.1e} at {dtype}",
        f"最大差异 {difference:.2e} nats，{dtype} 限值 {limit:.1e}",
    )
    if difference == 0 and a.logprobs[0] == b.logprobs[0]:
        return _entry("logits", "same")
    return _entry("logits", "within" if difference <= limit and tie else "differs", detail)


def _decode(a: Answer, b: Answer, dtype: str) -> dict[str, Any]:
    """The positions after the first that both sides reached by the same tokens, by the base's best token there.

    When its log probability differs, `position` is the first where it does.
    """
    if not a.logprobs or not b.logprobs or a.token_ids is None or b.token_ids is None:
        return _entry("decode", "not seen", Text("not recorded on both sides", "并非两侧都有记录"))
    shared = metrics.common_prefix(a.token_ids, b.token_ids) + 1
    pairs = list(zip(a.logprobs, b.logprobs, strict=False))[1:shared]
    if not pairs:
        return _entry("decode", "not seen", Text("no position but the first is shared", "除首个位置外没有共同位置"))
    differences = [largest_difference(base, candidate, top=1) for base, candidate in pairs]
    limit = tolerances.LOGPROB[dtype]
    apart = next((i for i, difference in enumerate(differences, 1) if difference > limit), None)
    if apart is not None:
        at, worst = apart, differences[apart - 1]
    else:
        worst = max(differences)
        at = differences.index(worst) + 1
    if worst == 0:
        return _entry("decode", "same")
    detail = Text(
        f"position {at}: difference {worst:.2e} nats, limit {limit:.1e} at {dtype}; {len(pairs)} positions",
        f"位置 {at}：差异 {worst:.2e} nats，{dtype} 限值 {limit:.1e}；共 {len(pairs)} 个位置",
    )
    if apart is None:
        return _entry("decode", "within", detail)
    return {**_entry("decode", "differs", detail), "position": apart}


def largest_difference(base: list[Any], candidate: list[Any], top: int = 5) -> float:
    """Largest |log p - log q| over base's best tokens; a token the other side does not list counts with its least."""
    theirs = dict(candidate)
    least = min(theirs.values())
    return max(abs(logprob - theirs.get(token, least)) for token, logprob in base[:top])


def gap_at(base: list[Any], candidate: list[Any], base_token: int, candidate_token: int) -> float | None:
    """How far, in nats, the two sides are from choosing alike: the larger of both sides' own preference.

    A token outside a side's list is at least as far as the last one listed. None without log probabilities.
    """
    if not base or not candidate:
        return None
    if base_token == candidate_token:
        return 0.0
    return max(_preference(base, base_token, candidate_token), _preference(candidate, candidate_token, base_token))


def _preference(listed: list[Any], own: int, other: int) -> float:
    logprobs = dict(listed)
    least = min(logprobs.values())
    return float(logprobs.get(own, least) - logprobs.get(other, least))


def _text(a: Answer, b: Answer) -> dict[str, Any]:
    if a.token_ids is not None and b.token_ids is not None:
        at = metrics.first_divergence(a.token_ids, b.token_ids)
        if at is not None:
            return _entry("text", "differs", _from(at))
        if a.text != b.text:
            why = Text("the token ids are equal, the texts are not", "词元 id 相同，文本不同")
            return _entry("text", "differs", why)
    if a.text == b.text:
        return _entry("text", "same")
    return _entry("text", "differs", Text("the texts are not equal", "文本不相同"))


def _from(position: int) -> Text:
    return Text(f"from token {position}", f"从词元 {position} 起")


def fork(a: Answer, b: Answer, dtype: str) -> dict[str, Any] | None:
    """Where the answers part, what each side said there, the gap in nats, and whether it was a near tie."""
    if a.token_ids is None or b.token_ids is None:
        return None
    at = metrics.first_divergence(a.token_ids, b.token_ids)
    if at is None:
        return None
    tokens = [ids[at] if at < len(ids) else None for ids in (a.token_ids, b.token_ids)]
    record: dict[str, Any] = {"position": at, "base_token": tokens[0], "candidate_token": tokens[1]}
    listed = [answer.logprobs[at] if answer.logprobs and at < len(answer.logprobs) else None for answer in (a, b)]
    gap = None
    if listed[0] and listed[1] and tokens[0] is not None and tokens[1] is not None:
        gap = gap_at(listed[0], listed[1], tokens[0], tokens[1])
    return {**record, "gap_nats": gap, "near_tie": None if gap is None else gap <= tolerances.NEAR_TIE[dtype]}


def forced(a: Answer, b: Answer, dtype: str) -> dict[str, Any] | None:
    """Every position compared on the base's tokens, so that one harmless fork does not hide what follows.

    Uses the candidate's `stages.forced` = {"token_ids", "logprobs"}; None when it was not captured, or on other tokens.
    """
    record = b.stages.get("forced")
    if not record or a.token_ids is None or record["token_ids"] != a.token_ids or not a.logprobs:
        return None
    disagreeing: list[dict[str, Any]] = []
    ties: list[dict[str, Any]] = []
    worst, apart = 0.0, None
    for position, (base, candidate) in enumerate(zip(a.logprobs, record["logprobs"], strict=False)):
        difference = largest_difference(base, candidate, top=1)
        worst = max(worst, difference)
        if apart is None and difference > tolerances.LOGPROB[dtype]:
            apart = position
        if base[0][0] == candidate[0][0]:
            continue
        gap = gap_at(base, candidate, base[0][0], candidate[0][0])
        near = gap is not None and gap <= tolerances.NEAR_TIE[dtype]
        (ties if near else disagreeing).append({"position": position, "gap_nats": gap})
    return {
        "positions": min(len(a.logprobs), len(record["logprobs"])),
        "disagreeing": disagreeing,
        "near_ties": ties,
        "largest_difference_nats": worst,
        "apart": apart,
    }
