"""`ascend-vl bisect BASE CANDIDATE --cases F --case ID`: from a wrong answer to the operator."""

from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from ascend_vl.cli import output
from ascend_vl.language import Text

EXIT = {"PASS": 0, "PASS WITH LIMITATIONS": 0, "FAIL": 1, "INCONCLUSIVE": 2}


def command(
    base: Annotated[str, typer.Argument(help="transformers:DIRECTORY")],
    candidate: Annotated[str, typer.Argument(help="a model directory, run in our engine")],
    cases: Annotated[Path, typer.Option(help="JSONL of cases")],
    case: Annotated[str, typer.Option(help="the case whose answer is wrong")],
    out: Annotated[Path | None, typer.Option(help="directory for what is found; new or empty")] = None,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16")] = "float32",
    as_json: output.Json = False,
    lang: output.Lang = None,
) -> None:
    """Find the stage, module, operator or weight where the candidate leaves the base: exit 0 none, 1 found, 2 not."""

    def body() -> int:
        from ascend_vl.verify import bisect, capture, targets

        targets.check_dtype(dtype)
        first, second = bisect.directories(base, candidate)
        chosen = bisect.choose(cases, case)
        place = out or Path(f"bisect-{datetime.now().strftime('%Y%m%d-%H%M%S')}")
        capture.require_empty(place)
        with output.remarks.status("") as shown:
            search = bisect.Search(
                first, second, chosen, cases, place, dtype, progress=lambda text: shown.update(escape(text))
            )
            finding = bisect.bisect(search)
        if as_json:
            output.print_json(finding)
        else:
            show(finding, place)
        return EXIT[finding["verdict"]]

    output.run(body, as_json=as_json, lang=lang)


def show(finding: dict[str, Any], out: Path) -> None:
    """What was found, one line each."""
    mark = (
        str(Text(" (emulated: says nothing about hardware)", "（模拟 emulated：不代表硬件结果）"))
        if finding["emulated"]
        else ""
    )
    rows = (
        (Text("verdict", "结论"), finding["verdict"] + mark),
        (Text("stage", "阶段"), finding.get("stage")),
        (Text("module", "模块"), finding.get("module")),
        (Text("operator", "算子"), finding.get("operator")),
        (Text("in", "位于"), finding.get("operator_module")),
        (Text("shapes", "形状"), ", ".join(finding.get("shapes") or [])),
        (Text("why", "原因"), finding.get("why")),
        (Text("cure", "修复"), (finding.get("cure") or {}).get("adaptation")),
        (Text("captures", "捕获次数"), finding["captures"]),
        (Text("reproduction", "复现"), finding.get("reproduction")),
        (Text("kept in", "保存于"), out),
    )
    for label, value in rows:
        if value:
            output.console.print(f"{label}: {escape(str(value))}{mark if label.en == 'cure' else ''}", soft_wrap=True)
