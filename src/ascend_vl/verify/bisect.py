"""From "this answer is wrong" to the stage, the module, the operator and its shapes, the weight, and the cure.

One case is asked on both sides. If the vision tower or what follows it differs, the place where the candidate leaves
the reference is found by halving: one tensor a run, judged against float64 with the reference's own error as the unit.
Inside the block found, every operator is replayed on the inputs it really had.
"""

import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text
from ascend_vl.verify import capture, comparison, remote, requirements, runs, targets, tolerances
from ascend_vl.verify.cases import Case, read_cases
from ascend_vl.verify.reference_session import ReferenceSession, session
from ascend_vl.verify.stage_reference import strays_far, three_ways

SCHEMA = 1
BEFORE_THE_MODEL = ("request", "image_bytes", "grid", "pixel_values", "prompt_ids")
# Which adaptations can heal what; tried in this order.
CURES = {
    "vision attention": ("vision-lengths", "vision-operator", "vision-exact-kernel", "vision-head-width"),
    "rotary": ("rotary-dtype",),
    "embeddings": ("embedding-merge",),
}
# States in which forcing an adaptation on can change nothing: it is in force, or this stack does it by itself.
NOT_TRIED = ("handled-upstream", "active", "forced", "unprobed")


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
    room: int | None = None
    states: dict[str, str] = field(default_factory=dict)
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
    with _engine(search) as running:
        server = remote.Server(running.url, running.api_key)
        workers = (running.status or {}).get("workers") or [{}]
        search.states = {line["id"]: line["state"] for line in workers[0].get("adaptations", [])}
        options = capture.Options(dtype=search.dtype, name="candidate", forced=_forced(base))
        candidate = capture.from_server(
            server, [search.case], search.out / "candidate", options, model=search.candidate
        )
        search.captures += 1
        result = comparison.compare(base, candidate, requirements.of_recipe("default"))
        finding = _look(search, server, base, candidate, result["cases"][0])
    if finding["verdict"] == "FAIL" and finding.get("operator_kind"):
        finding["cure"] = _heal(search, finding)
    modules = finding.pop("modules", 0)
    finding |= {
        "schema": SCHEMA,
        "case": search.case.id,
        "dtype": search.dtype,
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
    return targets.engine(search.candidate, search.dtype, enforce_eager=True, max_model_len=search.room, extra=extra)


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


def _forced(base: runs.Run) -> dict[str, tuple[str, list[int]]]:
    return {name: (a.text, a.token_ids) for name, a in base.answers.items() if a.token_ids is not None}


def _look(
    search: Search, server: remote.Server, base: runs.Run, candidate: runs.Run, case: dict[str, Any]
) -> dict[str, Any]:
    """Decide where to search, and search."""
    first = case["first_difference"]
    details = {entry["stage"]: entry["detail"] for entry in case["chain"]}
    if first in BEFORE_THE_MODEL:
        return {"verdict": "FAIL", "stage": first, "why": details[first], "module": None, "operator": None}
    rows = three_ways(base, candidate)
    floor = tolerances.floor(search.dtype)
    straying = [row for row in rows if strays_far(row, floor)]
    if straying:
        return _in_tower(search, server, straying)
    decided = case["fork"] is not None and case["fork"]["near_tie"] is False
    forced = case["forced"]
    if first == "logits" or (decided and case["fork"]["position"] == 0):
        return _in_text(search, server)
    if first is None and not (forced and forced["disagreeing"]):
        return {"verdict": "PASS", "stage": None, "why": "no stage differs beyond its tolerance", "module": None}
    if first == "text" and case["fork"] and case["fork"]["near_tie"]:
        why = (
            f"the answers part at token {case['fork']['position']} on a near tie of {case['fork']['gap_nats']:.3g} nats"
        )
        return {"verdict": "PASS WITH LIMITATIONS", "stage": "text", "why": why, "module": None}
    found = _in_text(search, server)
    if found["module"] is None:
        found["why"] = f"{found['why']}; the answers part later ({details['text']})"
    return found


def _in_tower(search: Search, server: remote.Server, straying: list[dict[str, Any]]) -> dict[str, Any]:
    from ascend_vl.verify.points_list import tower_points

    vision = _config(search.base)["vision_config"]
    depth, deepstack = int(vision["depth"]), list(vision["deepstack_visual_indexes"])
    names = {row["tensor"].partition(": ")[2] for row in straying}
    layer = None
    if "features" not in names:
        layer = min(int(name.split()[-1]) for name in names)
    return _halve(search, server, "tower", tower_points(depth, deepstack, layer))


def _in_text(search: Search, server: remote.Server) -> dict[str, Any]:
    from ascend_vl.verify.points_list import text_points

    return _halve(search, server, "logits", text_points(int(_config(search.base)["text_config"]["num_hidden_layers"])))


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
            why = f"{points[high]} does not stray from the reference"
            return {"verdict": "INCONCLUSIVE", "stage": stage, "module": None, "why": why, "modules": len(points)}
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if strays(middle) else (middle + 1, high)
    finding = _inside(search, server, points[high])
    return {"stage": stage, "module": points[high], "modules": len(points), **finding}


def _strays(search: Search, server: remote.Server, reference: ReferenceSession, point: str) -> bool:
    """Whether the candidate errs more than twice as much as the reference, and a floor, at one place."""
    search.progress(f"{Text('looking at', '查看')} {point}")
    place = search.out / "points" / point
    place.parent.mkdir(exist_ok=True)
    server.rpc("ascend_vl_point_start", point)
    _prefill(server, search.case)
    server.rpc("ascend_vl_point_take", f"{place.resolve()}.npy")
    search.captures += 1
    reference.point(point, place.resolve())
    step: dict[str, Any] = {"point": point}
    reference_error, engine_error = errors_at(place)
    if engine_error is None or reference_error is None:
        step |= {"reference_error": reference_error, "engine_error": engine_error, "strays": True}
    else:
        limit = 2 * reference_error + tolerances.floor(search.dtype)
        step |= {"reference_error": reference_error, "engine_error": engine_error, "limit": limit}
        step["strays"] = engine_error > limit
    search.steps.append(step)
    return bool(step["strays"])


def errors_at(place: Path) -> list[float | None]:
    """[reference, engine]: relative L2 distance from golden of what `place` keeps; None: other shape or not finite."""
    ours, exact, theirs = (np.load(f"{place}{suffix}") for suffix in (".npy", ".golden.npy", ".dtype.npy"))
    norm = float(np.linalg.norm(exact)) or 1.0
    errors: list[float | None] = []
    for side in (theirs, ours):
        if side.shape[0] < exact.shape[0] or side.shape[-1] < exact.shape[-1]:
            errors.append(None)
            continue
        # Engines pad rows for their kernels and vocabularies for their splits.
        value = float(np.linalg.norm(side[: exact.shape[0], : exact.shape[-1]] - exact)) / norm
        errors.append(value if math.isfinite(value) else None)
    return errors


def _prefill(server: remote.Server, case: Case) -> None:
    """Run the case's prompt once, with no cache able to answer for any part of it."""
    one = Case(case.id, case.prompt, case.images, 1)
    server.ask(one, fresh_images=True, fresh_prompt=True)


def _inside(search: Search, server: remote.Server, point: str) -> dict[str, Any]:
    """The operator or weight inside a block that strays."""
    if point == "embeddings":
        why = "picture features are not where the prompt's placeholders are"
        return {"verdict": "FAIL", "operator": "embedding merge", "operator_kind": "embeddings", "why": why}
    repro = search.out / "repro"
    repro.mkdir(exist_ok=True)
    server.rpc("ascend_vl_block_start", point)
    _prefill(server, search.case)
    search.captures += 1
    borders = _borders(search)
    places = [path.resolve() for path in (search.base, search.candidate)]
    seen = server.rpc("ascend_vl_block_judge", *places, json.dumps(borders), repro.resolve())
    failed = [row for row in seen["operators"] if row["verdict"] == "FAIL"]
    unlike = _unlike_weights(search, point, seen)
    found: dict[str, Any] = {"operators": seen["operators"], "weights": unlike}
    if unlike:
        names = ", ".join(name for item in unlike for name in item["tensors"])
        return {**found, "verdict": "FAIL", "operator": None, "why": f"the weight is not the base's: {names}"}
    if failed:
        # What follows a wrong operator is judged on the inputs it got, so the furthest outside is the cause.
        worst = max(failed, key=lambda row: row["target_error"] / row["limit"] if row.get("limit") else math.inf)
        write_reproduction(repro, worst)
        return {
            **found,
            "verdict": "FAIL",
            "operator": worst["operator"],
            "operator_module": worst["module"],
            "operator_kind": worst["kind"],
            "shapes": worst["inputs"],
            "why": worst["why"],
            "reproduction": str(repro),
        }
    unknown = [row["module"] for row in seen["operators"] if row["verdict"] == "INCONCLUSIVE"]
    why = "each operator known here is right for the inputs it got"
    return {
        **found,
        "verdict": "INCONCLUSIVE",
        "operator": None,
        "why": why + (f"; unknown: {', '.join(unknown)}" if unknown else ""),
    }


def _unlike_weights(search: Search, point: str, seen: dict[str, Any]) -> list[dict[str, Any]]:
    """Weights that the engine does not hold as its checkpoint says, or that the two checkpoints do not share."""
    if seen["weights"]:
        return list(seen["weights"])
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
    runs.write_json(directory / "expected.json", worst)
    script = (Path(__file__).parent / "templates" / "reproduce.py.txt").read_text(encoding="utf-8")
    (directory / "reproduce.py").write_text(script, encoding="utf-8")


def _heal(search: Search, finding: dict[str, Any]) -> dict[str, Any] | None:
    """The first registered adaptation that, forced on, brings the place back; tried, never assumed."""
    from ascend_vl.adaptations import override, registry

    kind = str(finding["operator_kind"])
    known = registry.ids()
    before = os.environ.get(override.VARIABLE)
    untried = [name for name in CURES.get(kind, ()) if name in known and search.states.get(name) not in NOT_TRIED]
    for name in untried:
        search.progress(f"{Text('trying', '尝试')} {name}")
        os.environ[override.VARIABLE] = ",".join(filter(None, (before, f"+{name}")))
        place = search.out / "trials" / name
        trial = Search(search.base, search.candidate, search.case, search.cases, place, search.dtype, room=search.room)
        try:
            if _healed(trial, finding["module"]):
                return {"adaptation": name, "confirmed": True}
        except AscendVLError as error:
            search.steps.append({"trial": name, "error": error.code})
        finally:
            if before is None:
                os.environ.pop(override.VARIABLE, None)
            else:
                os.environ[override.VARIABLE] = before
    return None


def _healed(trial: Search, point: str) -> bool:
    trial.out.mkdir(parents=True, exist_ok=True)
    with _engine(trial) as running:
        server = remote.Server(running.url, running.api_key)
        with session(trial.base, trial.dtype, _single(trial), trial.case.id) as reference:
            return not _strays(trial, server, reference, point)


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
