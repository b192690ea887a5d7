"""From "this answer is wrong" to the stage, the module, the operator and its shapes, the weight, and the cure.

One case is asked on both sides. If the vision tower or what follows it differs, the place where the candidate leaves
the reference is found by halving: one tensor a run, judged against float64 with the reference's own error as the unit.
Inside the block found, every operator is replayed on the inputs it really had.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ascend_vl.adaptations.record import Facts, MachineFacts
from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text
from ascend_vl.plan.adapting import facts_of
from ascend_vl.verify import capture, comparison, cures, looks, remote, requirements, runs, targets, tolerances
from ascend_vl.verify.cases import Case, read_cases
from ascend_vl.verify.looks import Look
from ascend_vl.verify.reference_session import ReferenceSession, session
from ascend_vl.verify.stage_reference import strays_far, three_ways

SCHEMA = 1
# Of a block, between its own look and the finding: it strays although all in it is right.
AMPLIFIED = "amplified"
BEFORE_THE_MODEL = ("request", "image_bytes", "grid", "pixel_values", "prompt_ids")


# What blocks of the tower, its mergers, and layers of the language model are made of at least.
WHOLE: tuple[set[str], ...] = (
    {"vision attention", "rotary", "linear", "layer norm", "gelu"},
    {"text attention", "mrope rotary", "linear", "rms norm", "silu and multiply"},
)
# Where answers begin to differ when all up to the first token's logits agrees; then every position is looked at.
LATE = (None, "decode", "text")


@dataclass
class Search:
    """One bisection under way."""

    base: Path
    candidate: Path
    case: Case
    cases: Path
    out: Path
    dtype: str
    progress: Callable[[str], None] = lambda text: None
    tensor_parallel: int = 1
    room: int | None = None
    look: Look = field(default_factory=Look)
    states: dict[str, str] = field(default_factory=dict)
    facts: Facts = field(default_factory=MachineFacts)
    captures: int = 0
    steps: list[dict[str, Any]] = field(default_factory=list)


def bisect(search: Search) -> dict[str, Any]:
    """The finding: {"verdict", "stage", "module", "operator", "weights", "cure", "captures", "steps", ...}.

    Verdicts: PASS (no difference), PASS WITH LIMITATIONS (a near tie), FAIL (the cause is named), INCONCLUSIVE.
    Raises AscendVLError for what cannot be asked.
    """
    search.out.mkdir(parents=True, exist_ok=True)
    search.progress(str(Text("asking the reference", "询问参考实现")))
    one_case = _single(search)
    options = capture.Options(dtype=search.dtype, golden=True, name="base")
    base = capture.transformers(search.base, one_case, search.out / "base", options)
    search.room = _room(base.answers[search.case.id], search.case)
    search.progress(str(Text("starting the engine", "启动引擎")))
    with _engine(search) as running:
        server = remote.Server(running.url, running.api_key)
        workers = (running.status or {}).get("workers") or [{}]
        search.facts = facts_of(running.plan.machine)
        search.states = {line["id"]: line["state"] for line in workers[0].get("adaptations", [])}
        options = capture.Options(dtype=search.dtype, name="candidate")
        candidate = capture.from_server(
            server, [search.case], search.out / "candidate", options, model=search.candidate
        )
        search.captures += 1
        result = comparison.compare(base, candidate, requirements.of_recipe("default"))
        if result["cases"][0]["first_difference"] in LATE and not _straying(search, base, candidate):
            candidate = _on_the_bases_tokens(search, server, base, candidate)
            result = comparison.compare(base, candidate, requirements.of_recipe("default"))
        finding = _look(search, server, base, candidate, result["cases"][0])
    if finding["verdict"] == "FAIL" and finding.get("operator_kind"):
        finding["cure"] = _heal(search, finding)
    modules = finding.pop("modules", 0)
    why = finding.pop("why")
    finding |= {
        "schema": SCHEMA,
        "case": search.case.id,
        "dtype": search.dtype,
        "tensor_parallel": search.tensor_parallel,
        "why": why.en,
        "why_zh": why.zh,
        "captures": search.captures,
        "capture_limit": (math.ceil(math.log2(modules)) if modules else 0) + 6,
        "self_agreement": result["self_agreement"],
        "steps": search.steps,
        "emulated": candidate.emulated,
    }
    runs.write_json(search.out / "bisect.json", finding)
    runs.write_manifest(search.out)
    return finding


def _engine(search: Search) -> Any:
    """The candidate, eager (a compiled block cannot be looked into), with room for this case and little more."""
    # Its memory is not in question: the warm-up with the largest picture there can be is left out.
    extra = ("--skip-mm-profiling",)
    wishes: dict[str, Any] = {"enforce_eager": True, "max_model_len": search.room, "extra": extra}
    if search.tensor_parallel > 1:
        wishes["tensor_parallel_size"] = search.tensor_parallel
    return targets.engine(search.candidate, search.dtype, **wishes)


def _room(answer: runs.Answer, case: Case) -> int:
    """Tokens to serve this case with, in steps of 2048: engines warm up with as large a picture as fits."""
    needed = 2 * (len(answer.stages["prompt_ids"]) + case.max_tokens)
    return 2048 * math.ceil(needed / 2048)


def _single(search: Search) -> Path:
    """A cases file with the one case; its pictures by their whole paths."""
    path = search.out / "case.jsonl"
    case = search.case
    images = [str(image.resolve()) for image in case.images]
    line = {"id": case.id, "images": images, "prompt": case.prompt, "max_tokens": case.max_tokens}
    runs.write_lines(path, [{**line, "key_fields": case.key_fields}])
    return path


def _straying(search: Search, base: runs.Run, candidate: runs.Run) -> list[dict[str, Any]]:
    """Tensors of the tower that are outside the rule."""
    return [row for row in three_ways(base, candidate) if strays_far(row, tolerances.floor(search.dtype))]


def _on_the_bases_tokens(search: Search, server: remote.Server, base: runs.Run, candidate: runs.Run) -> runs.Run:
    """The candidate's run with what it says at every position of the base's answer, read at once."""
    given = base.answers[search.case.id]
    capture.force(server, search.case, candidate.answers[search.case.id], given.text, given.token_ids or [])
    search.captures += 1
    runs.write_run(candidate.path, candidate.info, list(candidate.cases.values()), list(candidate.answers.values()))
    return runs.read_run(candidate.path)


def _look(
    search: Search, server: remote.Server, base: runs.Run, candidate: runs.Run, case: dict[str, Any]
) -> dict[str, Any]:
    """Decide where to search, and search."""
    first = case["first_difference"]
    entries = {entry["stage"]: entry for entry in case["chain"]}
    if first in BEFORE_THE_MODEL:
        why = Text(entries[first]["detail"], entries[first]["detail_zh"])
        return {"verdict": "FAIL", "stage": first, "why": why, "module": None, "operator": None}
    straying = _straying(search, base, candidate)
    fork, forced = case["fork"], case["forced"]
    decided = fork is not None and fork["near_tie"] is not True
    if straying:
        return _settled(_in_tower(search, server, straying), decided)
    position = entries["decode"].get("position") if first == "decode" else fork["position"] if decided else None
    stage, ends_at = "logits", "logits"
    if first != "logits" and position != 0:
        at_once = forced and (forced["disagreeing"] or forced["apart"] is not None)
        if position is None and not at_once:
            return _nothing(fork)
        answer = base.answers[search.case.id]
        ids = answer.token_ids or []
        if at_once:
            # The head gives logits of the last position only; the norm before it gives all.
            stage, ends_at = "continuation", "language_model.norm"
            search.look = Look(answer.text, tuple(ids[:-1]))
        else:
            stage, search.look = "decode", Look(token_ids=tuple(ids[:position]), step=position)
    found = _in_text(search, server, stage, ends_at)
    if stage == "decode":
        found["position"] = position
    if found["module"] is None and not decided:
        return {**found, **_nothing(fork), "why": _within_rounding(found["why"])}
    return _settled(found, decided)


def _settled(found: dict[str, Any], decided: bool) -> dict[str, Any]:
    """A block that only amplifies rounding is no fault where the answers agree, and explains none where they do not."""
    if found["verdict"] != AMPLIFIED:
        return found
    if decided:
        return {**found, "verdict": "INCONCLUSIVE"}
    why = Text(f"{found['module']} strays, but {found['why'].en}", f"{found['module']} 有偏差，但{found['why'].zh}")
    return {**found, "verdict": "PASS WITH LIMITATIONS", "module": None, "why": why}


def _nothing(fork: dict[str, Any] | None) -> dict[str, Any]:
    """The finding where no stage differs, or only by a near tie."""
    if fork is None:
        why = Text("no stage differs beyond its tolerance", "各阶段差异均在容差之内")
        return {"verdict": "PASS", "stage": None, "why": why, "module": None}
    position, gap = fork["position"], fork["gap_nats"]
    why = Text(
        f"the answers part at token {position} on a near tie of {gap:.3g} nats",
        f"回答在词元 {position} 处因 {gap:.3g} nats 的近似平局而分开",
    )
    return {"verdict": "PASS WITH LIMITATIONS", "stage": "text", "why": why, "module": None}


def _within_rounding(why: Text) -> Text:
    return Text(
        f"log probabilities differ more than the table allows, but {why.en}: rounding at this dtype explains it",
        f"对数概率差异超出表中限值，但{why.zh}：可由该数据类型的舍入解释",
    )


def _in_tower(search: Search, server: remote.Server, straying: list[dict[str, Any]]) -> dict[str, Any]:
    from ascend_vl.verify.points_list import tower_points

    vision = _config(search.base)["vision_config"]
    depth, deepstack = int(vision["depth"]), list(vision["deepstack_visual_indexes"])
    names = {row["tensor"].partition(": ")[2] for row in straying}
    layer = None
    if "features" not in names:
        layer = min(int(name.split()[-1]) for name in names)
    return _halve(search, server, "tower", tower_points(depth, deepstack, layer))


def _in_text(search: Search, server: remote.Server, stage: str, ends_at: str) -> dict[str, Any]:
    from ascend_vl.verify.points_list import text_points

    points = text_points(int(_config(search.base)["text_config"]["num_hidden_layers"]))
    return _halve(search, server, stage, points[: points.index(ends_at) + 1])


def _config(model: Path) -> dict[str, Any]:
    return runs.read_json(model / "config.json")


def _halve(search: Search, server: remote.Server, stage: str, points: list[str]) -> dict[str, Any]:
    """The first of `points` where the candidate strays; each look is one run on either side."""
    with session(search.base, search.dtype, _single(search), search.case.id) as reference:
        known: dict[int, bool] = {}

        def strays(index: int) -> bool:
            if index not in known:
                known[index] = _strays(search, server, reference, points[index])
            return known[index]

        low, high = 0, len(points) - 1
        if not strays(high):
            why = Text(f"{points[high]} does not stray from the reference", f"{points[high]} 处与参考的偏差在规则之内")
            return {"verdict": "INCONCLUSIVE", "stage": stage, "module": None, "why": why, "modules": len(points)}
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if strays(middle) else (middle + 1, high)
    finding = _inside(search, server, points[high])
    return {"stage": stage, "module": points[high], "modules": len(points), **finding}


def _strays(search: Search, server: remote.Server, reference: ReferenceSession, point: str) -> bool:
    """Whether the candidate errs more than twice as much as the reference, and a floor, at one place."""
    search.progress(f"{Text('looking at', '查看')} {point}")
    found = looks.errors(search.look, server, reference, search.case, point, search.out / "points" / point)
    search.captures += 1
    step = looks.judged(point, found, search.dtype)
    search.steps.append(step)
    return bool(step["strays"])


def _inside(search: Search, server: remote.Server, point: str) -> dict[str, Any]:
    """The operator or weight inside a block that strays."""
    if point == "embeddings":
        why = Text("picture features are not where the prompt's placeholders are", "图片特征不在提示中的占位处")
        return {"verdict": "FAIL", "operator": "embedding merge", "operator_kind": "embeddings", "why": why}
    repro = search.out / "repro"
    repro.mkdir(exist_ok=True)
    server.rpc("ascend_vl_block_start", point, search.look.last)
    search.look.run(server, search.case)
    search.captures += 1
    borders = _borders(search)
    places = [path.resolve() for path in (search.base, search.candidate)]
    ranks = server.rpc_all("ascend_vl_block_judge", *places, json.dumps(borders), repro.resolve())
    return _blamed(ranks, _unlike_weights(search, point, ranks))


def _blamed(ranks: list[dict[str, Any]], unlike: list[dict[str, Any]]) -> dict[str, Any]:
    """What the ranks' replays say: the weight, or the operator furthest outside of all ranks, or nothing."""
    rows = [{**row, "rank": seen["rank"], "place": seen["place"]} for seen in ranks for row in seen["operators"]]
    found: dict[str, Any] = {"operators": rows, "weights": unlike}
    if unlike:
        names = ", ".join(name for item in unlike for name in item["tensors"])
        why = Text(f"the weight is not the base's: {names}", f"权重与基准不同：{names}")
        return {**found, "verdict": "FAIL", "operator": None, "why": why}
    failed = [row for row in rows if row["verdict"] == "FAIL"]
    if failed:
        # What follows a wrong operator is judged on the inputs it got, so the furthest outside is the cause.
        worst = max(failed, key=lambda row: row["target_error"] / row["limit"] if row.get("limit") else math.inf)
        repro = Path(worst["place"])
        write_reproduction(repro, worst)
        return {
            **found,
            "verdict": "FAIL",
            "operator": worst["operator"],
            "operator_module": worst["module"],
            "operator_kind": worst["kind"],
            "rank": worst["rank"],
            "shapes": worst["inputs"],
            "why": Text(worst["why"], worst["why_zh"]),
            "reproduction": str(repro),
        }
    unknown = sorted({row["module"] for row in rows if row["verdict"] == "INCONCLUSIVE"})
    if not unknown and _whole(rows):
        why = Text(
            "each of its operators is right for the inputs it got: the block amplifies rounding",
            "其中每个算子对其所得输入都正确：该模块放大了舍入误差",
        )
        return {**found, "verdict": AMPLIFIED, "operator": None, "why": why}
    why = Text(
        f"each operator known here is right for the inputs it got; unknown: {', '.join(unknown) or 'all'}",
        f"此处已知的每个算子对其所得输入都正确；未知算子：{'、'.join(unknown) or '全部'}",
    )
    return {**found, "verdict": "INCONCLUSIVE", "operator": None, "why": why}


def _whole(rows: list[dict[str, Any]]) -> bool:
    """Whether a block's replays hold all that such a block is made of, so that nothing of it went unseen."""
    kinds = {row["kind"] for row in rows}
    return any(needed <= kinds for needed in WHOLE)


def _unlike_weights(search: Search, point: str, ranks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Weights that the engine does not hold as its checkpoint says, or that the two checkpoints do not share."""
    wrong = {str(item["tensors"]): item for seen in ranks for item in seen["weights"]}
    if wrong:
        return list(wrong.values())
    if search.base.resolve() == search.candidate.resolve():
        return []
    from ascend_vl.verify.replay import engine_path
    from ascend_vl.verify.weights import CheckpointTensors, compare_checkpoints

    return compare_checkpoints(CheckpointTensors(search.base), CheckpointTensors(search.candidate), engine_path(point))


def _borders(search: Search) -> list[int]:
    """Where each picture's patches end in one pass of the tower; attention must not cross these."""
    answer = runs.read_run(search.out / "base").answers[search.case.id]
    edges = [0]
    for frames, height, width in answer.stages.get("grid") or []:
        for _ in range(frames):
            edges.append(edges[-1] + height * width)
    return edges


def write_reproduction(directory: Path, worst: dict[str, Any]) -> None:
    """Beside the inputs: the expected numbers, and a script that recomputes them, fit for an upstream report."""
    runs.write_json(directory / "expected.json", {key: worst[key] for key in worst if key != "place"})
    script = (Path(__file__).parent / "templates" / "reproduce.py.txt").read_text(encoding="utf-8")
    (directory / "reproduce.py").write_text(script, encoding="utf-8")


def _heal(search: Search, finding: dict[str, Any]) -> dict[str, Any] | None:
    """The first registered adaptation that, forced on, brings the place back; tried, never assumed."""
    point = str(finding["module"])

    def heals(name: str) -> bool:
        search.progress(f"{Text('trying', '尝试')} {name}")
        place = search.out / "trials" / name / point
        cures.keep_reference(search.out / "points" / point, place)
        found = None
        # Twice: vLLM picks a port for its ranks before it binds it, and another process may take it in between.
        for _ in range(2):
            try:
                with _engine(search) as running:
                    server = remote.Server(running.url, running.api_key)
                    found = looks.errors(search.look, server, None, search.case, point, place)
                break
            except AscendVLError as error:
                search.steps.append({"trial": name, "error": error.code})
        if found is None:
            return False
        step = looks.judged(point, found, search.dtype)
        search.steps.append({"trial": name, **{key: value for key, value in step.items() if key != "point"}})
        return not step["strays"]

    name = cures.first(cures.untried(str(finding["operator_kind"]), search.states, search.facts), heals)
    return {"adaptation": name, "confirmed": True} if name else None


def choose(cases: Path, identifier: str) -> Case:
    """A case by its id. Raises AscendVLError `case-unknown`."""
    known = {case.id: case for case in read_cases(cases)}
    if identifier not in known:
        raise AscendVLError(
            "case-unknown",
            Text(f"There is no case {identifier!r}.", f"没有用例 {identifier!r}。"),
            Text(f"There are: {', '.join(list(known)[:20])}.", f"可用：{'、'.join(list(known)[:20])}。"),
            Text("Name one with --case.", "请用 --case 指定。"),
        )
    return known[identifier]


def directories(base: str, candidate: str) -> tuple[Path, Path]:
    """The two sides. Raises AscendVLError `bisect-targets`, `target-unknown`."""
    first, second = targets.parse(base), targets.parse(candidate)
    if first.kind != "transformers" or second.kind != "engine":
        raise AscendVLError(
            "bisect-targets",
            Text("These two cannot be bisected.", "无法在这两者之间定位。"),
            Text(
                "Looking inside needs transformers:DIRECTORY as the base and a model directory as the candidate.",
                "需要查看内部：基准须为 transformers:目录，被测须为模型目录。",
            ),
            Text("For a server, capture it and use compare.", "若是服务，请先 capture 再 compare。"),
        )
    return Path(first.place), Path(second.place)
