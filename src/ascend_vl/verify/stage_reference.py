"""Stage C: the same checkpoint in Transformers and in the engine, compared from the picture's bytes to the text.

Both sides are recorded first (`reference` and `candidate` beside the report). Then, in this order and stopping at the
first that fails: what each side says twice, bytes, grid, pixel values, prompt ids, tower features, pictures together
against alone, first-token logits, text.
"""

import math
import shutil
from pathlib import Path
from typing import Any

from ascend_vl.language import Text
from ascend_vl.verify import capture, comparison, remote, repeated_request, runs, tolerances
from ascend_vl.verify.cases import read_cases
from ascend_vl.verify.runs import Run
from ascend_vl.verify.stages import Session
from ascend_vl.verify.summaries import relative_difference

EXACT = (
    ("image_bytes", "image bytes"),
    ("grid", "grid"),
    ("pixel_values", "pixel values"),
    ("prompt_ids", "prompt ids"),
)


def run(session: Session) -> None:
    """Record both sides, compare them, judge the chain; the comparison stays in `session.facts`."""
    base, candidate = record(session)
    session.earn(*candidate.info["statuses"])
    result = comparison.compare(base, candidate, session.requirements)
    runs.write_json(session.out / "comparison.json", result)
    session.facts["comparison"] = result
    _agreement(session, "the reference", result["self_agreement"]["base"])
    if repeated_request.differs(candidate, [case.id for case in read_cases(session.cases) if case.images]):
        repeated_request.keep(session.engine().plan, failed=True)
    _agreement(session, "the engine", result["self_agreement"]["candidate"])
    for stage, name in EXACT:
        _stage(session, result, stage, name)
    _tower(session, base, candidate, result)
    _together(session)
    _stage(session, result, "logits", "first-token logits")
    session.earn("accuracy measured")
    _text(session, result)


def record(session: Session) -> tuple[Run, Run]:
    """The reference's RUN (or the one given), then the engine's, which also follows the reference's tokens."""
    dtype = session.dtype or engine_dtype(session)
    cases = read_cases(session.cases)

    def shown(side: Text) -> capture.OnCase:
        return lambda done, total: session.progress(f"{side}: {done}/{total}")

    session.facts["dtype"] = dtype
    if session.base:
        base = runs.read_run(_kept(session.base, session.out))
    else:
        options = capture.Options(dtype=dtype, golden=True, name=f"transformers {dtype}")
        out = session.out / "reference"
        base = capture.transformers(session.model, session.cases, out, options, shown(Text("reference", "参考")))
    server = session.engine()
    forced = {name: (a.text, a.token_ids) for name, a in base.answers.items() if a.token_ids is not None}
    options = capture.Options(
        dtype=dtype, concurrency=4 if len(cases) > 1 else 1, forced=forced, name=f"vllm {dtype}", api_key=server.api_key
    )
    asked = remote.Server(server.url, server.api_key)
    shown_engine = shown(Text("engine", "引擎"))
    out = session.out / "candidate"
    candidate = capture.from_server(asked, cases, out, options, shown_engine, model=session.model)
    session.facts["together"] = asked.rpc("ascend_vl_capture_together", 3)
    session.emulated = session.emulated or candidate.emulated
    session.require_unchanged()
    return base, candidate


def _kept(base: Path, out: Path) -> Path:
    """A recorded baseline copied beside the report, so that the report can be recomputed from what lies with it."""
    if base.is_dir():
        return Path(shutil.copytree(base, out / "reference"))
    return Path(shutil.copy(base, out / "reference.jsonl"))


def engine_dtype(session: Session) -> str:
    """The dtype the engine runs this model at when none was wished for."""
    status = session.engine().status or {}
    return str((status.get("model") or {}).get("dtype") or "float32")


def _agreement(session: Session, side: str, agreement: dict[str, Any]) -> None:
    """A side must agree with itself at least as well as it must with the other."""
    needed = max([r.low for r in session.requirements if r.metric == "token_match"], default=0.0)
    score, differing = agreement["token_match"], agreement["differing"]
    name = f"self-agreement of {side}"
    if score is None:
        session.check(name, None, Text("not measured: recorded without repeats", "未测量：记录中没有重复回答"))
        return
    cases = ", ".join(differing) or "-"
    detail = Text(
        f"lowest token match {score:.4f} over {agreement['repeats']} repeats; differing cases: {cases}",
        f"{agreement['repeats']} 次重复中最低词元匹配率 {score:.4f}；不一致的用例：{cases}",
    )
    session.check(name, score >= needed, detail, **agreement)


def _stage(session: Session, result: dict[str, Any], stage: str, name: str) -> None:
    """One stage of the chain over all cases."""
    entries = {case["id"]: next(e for e in case["chain"] if e["stage"] == stage) for case in result["cases"]}
    count = {status: sum(e["status"] == status for e in entries.values()) for status in ("same", "within", "differs")}
    said = {case: Text(entry["detail"], entry["detail_zh"]) for case, entry in entries.items()}
    differing = [case for case, entry in entries.items() if entry["status"] == "differs"]
    seen = sum(count.values())
    if not seen:
        reasons = [sorted({text[i] for text in said.values()}) for i in (0, 1)]
        english, chinese = "; ".join(reasons[0]), "；".join(reasons[1])
        session.check(name, None, Text(f"not seen in any case: {english}", f"所有用例均不可见：{chinese}"))
        return
    within = [case for case, entry in entries.items() if entry["status"] == "within"]
    shown = differing[:3] or within[:1]
    english = "".join(f"; {case}: {said[case].en}" for case in shown)
    chinese = "".join(f"；{case}：{said[case].zh}" for case in shown)
    detail = Text(
        f"{count['same']} same, {count['within']} within tolerance, {count['differs']} differ of {seen} seen{english}",
        f"可见 {seen} 个：{count['same']} 个相同，{count['within']} 个在容差内，{count['differs']} 个不同{chinese}",
    )
    session.check(name, not differing, detail, **count)


def _tower(session: Session, base: Run, candidate: Run, result: dict[str, Any]) -> None:
    """Against float64 where it was recorded: the engine may stray twice as far as the reference, and a floor."""
    dtypes = (base.info.get("dtype"), candidate.info.get("dtype"))
    rows = three_ways(base, candidate) if dtypes[0] == dtypes[1] else []
    if not rows:
        _stage(session, result, "tower", "tower features")
        return
    floor = tolerances.floor(tolerances.coarser(*dtypes))
    worst = max(rows, key=lambda row: row["engine"] - 2 * row["reference"])
    failed = [row for row in rows if strays_far(row, floor)]
    named = "; ".join(f"{row['case']}, {row['tensor']}: {row['engine']:.2e}" for row in failed[:3]) or "-"
    place = f"{worst['case']}, {worst['tensor']}"
    detail = Text(
        f"{len(rows)} tensors against float64: engine strays {worst['engine']:.2e}, reference {worst['reference']:.2e}"
        f" (worst: {place}); rule: engine <= 2 x reference + {floor:.1e}; outside: {named}",
        f"{len(rows)} 个张量与 float64 比较：引擎偏差 {worst['engine']:.2e}，参考偏差 {worst['reference']:.2e}"
        f"（最差：{place}）；规则：引擎 <= 2 x 参考 + {floor:.1e}；超出：{named}",
    )
    finite = [{k: v if v != math.inf else None for k, v in row.items()} for row in rows]
    session.check("tower features", not failed, detail, rows=finite)


def strays_far(row: dict[str, Any], floor: float) -> bool:
    """Whether a row of `three_ways` is outside the rule; values that are not finite always are."""
    return not math.isfinite(row["engine"]) or row["engine"] > 2 * row["reference"] + floor


def three_ways(base: Run, candidate: Run) -> list[dict[str, Any]]:
    """How far each tensor of the tower lies from float64, on either side, where the base recorded that."""
    rows = []
    for name, answer in base.answers.items():
        golden, reference = answer.stages.get("tower_golden"), answer.stages.get("tower")
        other = candidate.answers[name].stages.get("tower") if name in candidate.answers else None
        if not golden or not reference or not other or len(other) != len(golden):
            continue
        for exact, theirs, ours in zip(golden, reference, other, strict=True):
            strays = {"reference": relative_difference(exact, theirs), "engine": relative_difference(exact, ours)}
            rows.append({"case": name, "tensor": exact["name"], **strays})
    return rows


def _together(session: Session) -> None:
    """Pictures in one pass give what each gives alone: bit for bit, or within what a device strays from itself."""
    result = session.facts["together"]
    name = "pictures together against alone"
    if not result or result["pictures"] < 2:
        session.check(name, None, Text("not run: fewer than two pictures in the cases", "未运行：用例中的图片少于两张"))
        return
    swapped = result["nearest"] != list(range(result["pictures"]))
    ceiling = result["self_agreement"]["relative"] or 0.0
    strays = [result[order]["relative"] for order in ("together", "reversed")]
    exact = result["device"] == "cpu" or session.emulated
    limit = 0.0 if exact else max(2 * ceiling, tolerances.UNIT[result["dtype"]])
    good = not swapped and all(s is not None and s <= limit for s in strays)
    said = [_stray(value) for value in (*strays, ceiling, limit)]
    english, chinese = ([text[i] for text in said] for i in (0, 1))
    mixed = Text("; SWAPPED OR MIXED", "；图片互换或混淆") if swapped else Text("", "")
    detail = Text(
        f"{result['pictures']} pictures, grids {result['grids']}: together {english[0]}, reversed {english[1]}, "
        f"alone twice {english[2]}; limit {english[3]}{mixed.en}",
        f"{result['pictures']} 张图片，网格 {result['grids']}：合并 {chinese[0]}，逆序 {chinese[1]}，"
        f"单图两次 {chinese[2]}；限值 {chinese[3]}{mixed.zh}",
    )
    session.check(name, good, detail, **result)


def _stray(value: float | None) -> Text:
    if value is None:
        return Text("not finite", "非有限值")
    return Text("bit for bit", "逐位相同") if value == 0 else Text(f"{value:.2e}", f"{value:.2e}")


def _text(session: Session, result: dict[str, Any]) -> None:
    """The requirements, each a check; the last one decides."""
    for item in result["required"]:
        values = ", ".join(f"{k} {item[k]:.4f}" for k in ("mean", "min") if item[k] is not None)
        cases = f"; cases: {', '.join(item['failed_cases'][:5])}" if item["failed_cases"] else ""
        detail = Text(
            f"{values}{'; ' + item['why'] if item['why'] else ''}{cases}",
            f"{values}{'；' + item['why_zh'] if item['why_zh'] else ''}{cases}",
        )
        session.check(f"text: {item['require']}", item["passed"], detail)
    one_sided = result["only_in_base"] + result["only_in_candidate"] + result["asked_otherwise"]
    session.check("text: every case on both sides", not one_sided, ", ".join(one_sided))
