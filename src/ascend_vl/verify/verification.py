"""`verify`: run the stages, keep everything they saw beside the verdict, write the report."""

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ascend_vl import __version__
from ascend_vl.verify import capture, runs, stages
from ascend_vl.verify.cases import read_cases
from ascend_vl.verify.stages import Session, StageResult

FILE = "verify.json"


def verify(session: Session, keys: list[str], recipe: str) -> dict[str, Any]:
    """Run the stages into `session.out` and write verify.json, the report and the manifest; what verify.json holds.

    Raises AscendVLError where nothing could be found out about the model (exit code 2).
    """
    read_cases(session.cases)
    capture.require_empty(session.out)
    session.out.mkdir(parents=True, exist_ok=True)
    results = stages.run(session, keys)
    record = summary(session, results, recipe)
    runs.write_json(session.out / FILE, record)
    from ascend_vl.verify import report

    report.write([session.out], session.out / "report.html")
    runs.write_manifest(session.out)
    return record


def summary(session: Session, results: list[StageResult], recipe: str) -> dict[str, Any]:
    """verify.json: stages and checks, status words, what was not run, the verdict."""
    ran = [r for r in results if r.status != "not run"]
    stopped = any(r.why_not and r.why_not.startswith("stage ") for r in results)
    good = bool(ran) and all(r.status == "passed" for r in ran) and not stopped
    return {
        "schema": stages.SCHEMA,
        "ascend_vl": __version__,
        "recorded": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "model": session.model.resolve().name,
        "dtype": session.dtype or session.facts.get("dtype"),
        "recipe": recipe,
        "requirements": [str(requirement) for requirement in session.requirements],
        "optional": all(requirement.optional for requirement in session.requirements),
        "statuses": session.statuses,
        "emulated": session.emulated,
        "checkpoint": session.facts.get("checkpoint"),
        "together": session.facts.get("together"),
        "stages": stages.to_json(results),
        "not_run": [{"stage": r.key, "why": r.why_not} for r in results if r.status == "not run"],
        "verdict": "pass" if good else "fail",
    }


def default_out(model: Path) -> Path:
    """A new directory in the current one, named after the model and the time."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    return Path(f"verify-{model.resolve().name}-{stamp}")


def default_cases() -> Path:
    """The bundled cases: drawn shapes, asked about in English and Chinese."""
    demo = Path(__file__).parent.parent / "demo"
    found = [path for path in (demo / "cases.jsonl", demo / "pictures" / "cases.jsonl") if path.is_file()]
    return found[0] if found else demo / "cases.jsonl"
