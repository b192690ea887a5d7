"""The accuracy report: one HTML and one Markdown file, both languages, no network, no script; and its recomputation."""

import base64
import contextlib
import html
import json
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ascend_vl import __version__
from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text, language
from ascend_vl.verify import comparison, metrics, requirements, runs
from ascend_vl.verify.cases import unreadable
from ascend_vl.verify.runs import Run
from ascend_vl.verify.wording import words

TEMPLATES = Path(__file__).parent / "templates"
VERIFY = "verify.json"
COMPARISON = "comparison.json"
BISECT = "bisect.json"


def write(paths: list[Path], out: Path, required: list[str] | None = None, recipe: str = "default") -> dict[str, Any]:
    """Write `out` (HTML) and the same with suffix .md (English) and .zh.md (Chinese); the report's data.

    Runs are judged by `required`, or by the named recipe. One path: a directory that `verify` or `bisect` wrote, or a
    RUN to be shown alone. Several: RUNs, the first being the base.
    Raises AscendVLError `file-unreadable`, `run-invalid`, `report-input`, `report-name`, `recipe-unknown`.
    """
    if out.suffix not in (".html", ".htm"):
        raise AscendVLError(
            "report-name",
            Text(f"{out} cannot be the report's name.", f"报告不能命名为 {out}。"),
            Text("It is an HTML file; the Markdown is named after it.", "报告是 HTML 文件，Markdown 依其命名。"),
            Text("Name a file that ends in .html.", "请指定以 .html 结尾的文件名。"),
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    with _sound(paths[0]):
        data = gather(paths, required, recipe)
    record = {**_record(data, paths, out, required), "recipe": recipe}
    text = html_page(data, json.dumps(record, ensure_ascii=False), chinese=language() == "zh")
    out.write_text(text, encoding="utf-8")
    for suffix, markdown in markdown_pages(data).items():
        out.with_suffix(suffix).write_text(markdown, encoding="utf-8")
    return data


@contextlib.contextmanager
def _sound(path: Path) -> Iterator[None]:
    """Turn what damaged records do to their readers into AscendVLError `run-invalid`."""
    try:
        yield
    except (AttributeError, KeyError, IndexError, TypeError, ValueError, RecursionError) as error:
        if isinstance(error, AscendVLError):
            raise
        raise runs.invalid_run(path, f"its files are damaged ({type(error).__name__}: {error})") from None


def html_page(data: dict[str, Any], record: str, chinese: bool) -> str:
    """The report as HTML; both languages are in it, `chinese` says in which it opens."""
    page = _environment(html_page=True).get_template("report.html.jinja")
    return str(page.render(data=data, record=record, chinese=chinese))


def markdown_pages(data: dict[str, Any]) -> dict[str, str]:
    """The report as Markdown, by file suffix."""
    template = _environment(html_page=False).get_template("report.md.jinja")
    return {
        suffix: re.sub(r"\n{3,}", "\n\n", template.render(data=data, spoken=index))
        for suffix, index in ((".md", 0), (".zh.md", 1))
    }


def _environment(html_page: bool) -> Any:
    import jinja2

    loader = jinja2.FileSystemLoader(TEMPLATES)
    environment = jinja2.Environment(loader=loader, autoescape=html_page, undefined=jinja2.ChainableUndefined)
    environment.globals["words"] = words
    environment.filters["md"] = markdown_text
    return environment


def markdown_text(value: str) -> str:
    """Text that stays text in a Markdown table cell."""
    escaped = re.sub(r"([\\`*_\[\]|~#])", r"\\\1", html.escape(str(value), quote=False))
    return re.sub(r"\s*\n\s*", "<br>", escaped)


def gather(paths: list[Path], required: list[str] | None = None, recipe: str = "default") -> dict[str, Any]:
    """Everything the report shows, computed from the recorded files."""
    if len(paths) == 1 and (paths[0] / VERIFY).is_file():
        return _of_verification(paths[0])
    if len(paths) == 1 and (paths[0] / BISECT).is_file():
        return _of_bisection(paths[0])
    if any((path / name).is_file() for path in paths for name in (VERIFY, BISECT)):
        raise AscendVLError(
            "report-input",
            Text("These cannot be put in one report.", "无法放入同一份报告。"),
            Text(
                "A directory that verify or bisect wrote is a report of its own.",
                "verify 或 bisect 写出的目录自成一份报告。",
            ),
            Text("Give it alone, or give RUN directories.", "请单独给出，或给出多个 RUN 目录。"),
        )
    chosen = requirements.parse(required) if required else requirements.of_recipe(recipe)
    return _of_runs([runs.read_run(path) for path in paths], chosen)


def _of_runs(recorded: list[Run], chosen: list[requirements.Requirement]) -> dict[str, Any]:
    base, others = recorded[0], recorded[1:]
    compared = [_shown(comparison.compare(base, other, chosen), base, other) for other in others]
    emulated = any(run.emulated for run in recorded)
    statuses = list((others or recorded)[0].info.get("statuses", []))
    if others and all(c["summary"]["token_match"]["measured"] for c in compared):
        statuses.append("accuracy measured")
    return {
        "ascend_vl": __version__,
        "name": " / ".join(run.name for run in recorded) if len(recorded) < 3 else f"{base.name} + {len(others)}",
        "verdict": "not judged" if not others else "pass" if all(c["verdict"] == "pass" for c in compared) else "fail",
        "statuses": statuses,
        "emulated": emulated,
        "not_run": _untested(recorded),
        "verify": None,
        "comparisons": compared,
        "alone": [_alone(base)] if not others else [],
    }


def _untested(recorded: list[Run]) -> list[dict[str, str]]:
    """Modalities that no case of these runs touched: said first, so that nobody reads more into the report."""
    cases = [case for run in recorded for case in run.cases.values()]
    lacking = []
    if not any(case.get("images") for case in cases):
        lacking.append({"what": "image", "why": "not tested" if cases else "not recorded"})
    if cases and not any(len(case.get("images", [])) > 1 for case in cases):
        lacking.append({"what": "several images in one request", "why": "not tested"})
    return [*lacking, {"what": "video", "why": "not tested"}, {"what": "drawing", "why": "not tested"}]


def _of_verification(path: Path) -> dict[str, Any]:
    record = runs.read_json(path / VERIFY)
    compared = []
    recorded: list[Run] = []
    if (path / COMPARISON).is_file():
        stored = runs.read_json(path / COMPARISON)
        recorded = [runs.read_run(side) for side in sides(path)]
        compared = [_shown(stored, *recorded)]
    not_run = [{"what": f"stage {item['stage']}", "why": item["why"]} for item in record["not_run"]]
    for stage in record["stages"]:
        not_run += [
            {"what": c["name"], "why": c["detail"]} for c in stage["checks"] if c["detail"].startswith("not run")
        ]
    untested = [item for item in _untested(recorded) if item["what"] != "drawing"]
    return {
        "ascend_vl": record["ascend_vl"],
        "name": f"{record['model']} {record['dtype'] or ''}".strip(),
        "verdict": record["verdict"],
        "statuses": record["statuses"],
        "emulated": record["emulated"],
        "not_run": not_run + untested,
        "verify": record,
        "comparisons": compared,
        "alone": [],
    }


def _of_bisection(path: Path) -> dict[str, Any]:
    """What bisect found, with both answers and the errors at every place it looked at."""
    finding = runs.read_json(path / BISECT)
    base, candidate = runs.read_run(path / "base"), runs.read_run(path / "candidate")
    compared = comparison.compare(base, candidate, requirements.of_recipe("default"))
    looked = [step for step in finding["steps"] if "point" in step]
    return {
        "ascend_vl": __version__,
        "name": f"bisect {finding['case']} ({finding['dtype']})",
        "verdict": finding["verdict"],
        "statuses": candidate.info.get("statuses", []),
        "emulated": finding["emulated"],
        "not_run": _untested([base, candidate]),
        "verify": None,
        "comparisons": [_shown(compared, base, candidate)],
        "alone": [],
        "bisect": {**finding, "curves": curves(looked)},
    }


def curves(looked: list[dict[str, Any]]) -> dict[str, str]:
    """SVG points of the errors at the places looked at, in the model's order: 100 units high, a decade every 10."""

    def height(value: float | None) -> float:
        return 0.0 if value is None else min(100.0, max(0.0, -10 * math.log10(max(value, 1e-10))))

    def order(step: dict[str, Any]) -> tuple[int, list[int]]:
        kinds = (
            "visual.patch_embed",
            "visual.blocks",
            "visual.",
            "embeddings",
            "language_model.layers",
            "language_model",
            "",
        )
        rank = next(i for i, kind in enumerate(kinds) if step["point"].startswith(kind))
        return rank, [int(number) for number in re.findall(r"\d+", step["point"])]

    placed = sorted(looked, key=order)
    width = 300 / max(1, len(placed) - 1)
    return {
        side: " ".join(f"{i * width:.1f},{height(step.get(f'{side}_error')):.1f}" for i, step in enumerate(placed))
        for side in ("reference", "engine")
    }


def sides(path: Path) -> tuple[Path, Path]:
    """The two RUNs in a directory that verify wrote."""
    reference = path / "reference"
    return (reference if reference.exists() else path / "reference.jsonl"), path / "candidate"


def _shown(result: dict[str, Any], base: Run, candidate: Run) -> dict[str, Any]:
    """The comparison with what a reader sees of each case: pictures, prompt, both answers cut where they part."""
    shown = {}
    for case in result["cases"]:
        name = case["id"]
        texts = base.answers[name].text, candidate.answers[name].text
        at = metrics.common_prefix(*texts)
        pieces = [{"equal": text[:at], "rest": text[at:]} for text in texts]
        question = base.cases.get(name) or candidate.cases.get(name) or {}
        shown[name] = {
            "images": _pictures(base, name) or _pictures(candidate, name),
            "prompt": question.get("prompt"),
            "base": pieces[0],
            "candidate": pieces[1],
        }
    equal = sum(
        case["metrics"]["token_match"] == 1 and case["metrics"]["text_similarity"] == 1 for case in result["cases"]
    )
    return {**result, "shown": shown, "equal": equal}


def _pictures(run: Run, name: str) -> list[str]:
    hashes = run.answers[name].stages.get("image_bytes") or []
    files = [run.path / "images" / f"{digest[:16]}.png" for digest in hashes]
    return [f"data:image/png;base64,{base64.b64encode(f.read_bytes()).decode()}" for f in files if f.is_file()]


def _alone(run: Run) -> dict[str, Any]:
    answers = [
        {"id": name, "text": a.text, "images": _pictures(run, name), "prompt": run.cases.get(name, {}).get("prompt")}
        for name, a in run.answers.items()
    ]
    return {"name": run.name, "emulated": run.emulated, "answers": answers}


def _record(data: dict[str, Any], paths: list[Path], out: Path, required: list[str] | None) -> dict[str, Any]:
    """What the report says, machine-readable and without pictures, and where the files are, relative to the report."""
    parent = out.parent.resolve()
    names = [os.path.relpath(path.resolve(), parent) for path in paths]
    return {
        "schema": 1,
        "runs": names,
        "required": required,
        "verdict": data["verdict"],
        "statuses": data["statuses"],
        "comparisons": [
            strip({k: v for k, v in c.items() if k not in ("shown", "equal")}) for c in data["comparisons"]
        ],
        "sha256": {
            name: runs.digest(path)
            for name, path in zip(names, paths, strict=True)
            if not (path / VERIFY).is_file() and not (path / BISECT).is_file()
        },
    }


def strip(result: dict[str, Any]) -> dict[str, Any]:
    """A comparison without where its files were, which may change."""
    sides = {side: {k: v for k, v in result[side].items() if k != "path"} for side in ("base", "candidate")}
    stripped: dict[str, Any] = json.loads(json.dumps({**result, **sides}))
    return stripped


def check(path: Path) -> list[str]:
    """What is wrong with a RUN, a directory that verify wrote, or a report; empty when every number recomputes.

    Raises AscendVLError `file-unreadable` or `run-invalid` when there is nothing to recompute from.
    """
    with _sound(path):
        if path.suffix in (".html", ".htm"):
            return check_report(path)
        if (path / VERIFY).is_file():
            return check_verification(path)
        if (path / BISECT).is_file():
            return check_bisection(path)
        return check_run(path)


def check_run(path: Path) -> list[str]:
    """A RUN: every file as recorded, every answer's numbers consistent."""
    problems = [f"{path.name}: {name} is not as it was recorded" for name in runs.changed_files(path)]
    try:
        run = runs.read_run(path)
    except AscendVLError as error:
        return problems or [f"{error.what} {error.why}"]
    from ascend_vl.verify.capture_images import image_hash, normalised

    for picture in sorted((path / "images").glob("*.png")):
        if not image_hash(normalised(picture)).startswith(picture.stem):
            problems.append(f"{path.name}: images/{picture.name} does not have the hash in its name")
    problems += [f"{path.name}: case {name} has no answer" for name in run.cases if name not in run.answers]
    return problems


def check_verification(path: Path) -> list[str]:
    """A directory that verify wrote: files as recorded, and the comparison, verdict and report recomputed."""
    problems = [f"{name} is not as it was recorded" for name in runs.changed_files(path)]
    record = runs.read_json(path / VERIFY)
    if (path / COMPARISON).is_file():
        base, candidate = (runs.read_run(side) for side in sides(path))
        stored = runs.read_json(path / COMPARISON)
        chosen = requirements.parse(record["requirements"], optional=record["optional"])
        problems += differences(strip(stored), strip(comparison.compare(base, candidate, chosen)))
    judged = [stage["status"] for stage in record["stages"] if stage["status"] != "not run"]
    checks = {stage["key"]: [c["status"] for c in stage["checks"]] for stage in record["stages"]}
    for stage in record["stages"]:
        if stage["status"] == "passed" and "failed" in checks[stage["key"]]:
            problems.append(f"stage {stage['key']} is said to have passed, but a check of it failed")
    stopped = any(str(item["why"]).startswith("stage ") for item in record["not_run"])
    good = bool(judged) and all(status == "passed" for status in judged) and not stopped
    if record["verdict"] != ("pass" if good else "fail"):
        problems.append("the verdict does not follow from the stages")
    if (path / "report.html").is_file():
        problems += check_report(path / "report.html", deep=False)
    return problems


def check_bisection(path: Path) -> list[str]:
    """A directory that bisect wrote: files as recorded, and every error recomputed from the tensors it kept."""
    from ascend_vl.verify.looks import errors_at

    problems = [f"{name} is not as it was recorded" for name in runs.changed_files(path)]
    finding = runs.read_json(path / BISECT)
    for step in finding["steps"]:
        if "engine_error" not in step:
            continue
        trial, point = step.get("trial"), step.get("point") or finding["module"]
        place = path / "trials" / trial / point if trial else path / "points" / point
        again = errors_at(place)
        problems += differences([step["reference_error"], step["engine_error"]], again, f"{trial or ''} {point}")
    return problems


def check_report(path: Path, deep: bool = True) -> list[str]:
    """A report: what it says against what its runs give now."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from None
    found = re.search(r'<pre hidden id="ascend-vl-report">(.*?)</pre>', text, re.DOTALL)
    if not found:
        raise runs.invalid_run(path, "it holds no report of ours")
    hidden = html.unescape(found[1])
    record = json.loads(hidden)
    paths = [path.parent / name for name in record["runs"]]
    problems: list[str] = []
    for name, run in zip(record["runs"], paths, strict=True):
        if not run.exists():
            raise unreadable(run, FileNotFoundError(f"the run that {path.name} was made from is not there"))
        if deep:
            whole = (run / VERIFY).is_file() or (run / BISECT).is_file()
            problems += check(run) if whole else check_recorded(run, record["sha256"].get(name))
    if problems:
        return problems
    recipe = record.get("recipe", "default")
    data = gather(paths, record["required"], recipe)
    again = _record(data, paths, path, record["required"])
    problems += differences({k: v for k, v in record.items() if k != "recipe"}, again)
    if text not in (html_page(data, hidden, chinese=False), html_page(data, hidden, chinese=True)):
        problems.append(f"{path.name} does not say what its runs give")
    for suffix, markdown in markdown_pages(data).items():
        beside = path.with_suffix(suffix)
        if beside.is_file() and beside.read_text(encoding="utf-8", errors="replace") != markdown:
            problems.append(f"{beside.name} does not say what its runs give")
    return problems


def check_recorded(run: Path, sha256: str | None) -> list[str]:
    """A run under a report: itself sound, and the one the report was made from."""
    problems = check_run(run) if run.is_dir() else []
    if not problems and runs.digest(run) != sha256:
        problems.append(f"{run.name} is not the run this report was made from")
    return problems


def differences(stored: Any, computed: Any, where: str = "") -> list[str]:
    """Where two JSON values differ, as readable lines, at most a dozen."""
    if isinstance(stored, dict) and isinstance(computed, dict):
        keys = sorted(stored.keys() | computed.keys())
        found = [line for key in keys for line in differences(stored.get(key), computed.get(key), f"{where}.{key}")]
    elif isinstance(stored, list) and isinstance(computed, list) and len(stored) == len(computed):
        pairs = enumerate(zip(stored, computed, strict=True))
        found = [line for i, (a, b) in pairs for line in differences(a, b, f"{where}[{i}]")]
    else:
        found = (
            []
            if stored == computed
            else [f"{where.lstrip('.')}: recorded {_short(stored)}, recomputed {_short(computed)}"]
        )
    return found[:12]


def _short(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)[:60]
