"""`ascend-vl bisect BASE CANDIDATE --cases F --case ID`: from a wrong answer to the operator."""

from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from ascend_vl.cli import output
from ascend_vl.language import Text
from ascend_vl.verify.wording import words

EXIT = {"PASS": 0, "PASS WITH LIMITATIONS": 0, "FAIL": 1, "INCONCLUSIVE": 2}


def command(
    base: Annotated[str, typer.Argument(help="transformers:DIRECTORY")],
    candidate: Annotated[str, typer.Argument(help="a model directory, run in our engine")],
    cases: Annotated[Path, typer.Option(help="JSONL of cases")],
    case: Annotated[str, typer.Option(help="the case whose answer is wrong")],
    out: Annotated[Path | None, typer.Option(help="directory for what is found; new or empty")] = None,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16")] = "float32",
    tensor_parallel_size: Annotated[
        int, typer.Option("--tensor-parallel-size", "-tp", min=1, help="chips to split the candidate over")
    ] = 1,
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
                first,
                second,
                chosen,
                cases,
                place,
                dtype,
                progress=lambda text: shown.update(escape(text)),
                tensor_parallel=tensor_parallel_size,
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
    cure = finding.get("cure")
    rank = f", rank {finding['rank']}" if finding["tensor_parallel"] > 1 and "rank" in finding else ""
    stage = str(words(finding["stage"])) if finding.get("stage") else None
    if finding.get("position") is not None:
        stage = f"{stage}, {Text('position', '位置')} {finding['position']}"
    healed = f"{cure['adaptation']} ({Text('tried and confirmed', '已试验并确认')})" if cure else None
    if finding.get("operator_kind") and not cure:
        healed = str(Text("no registered adaptation heals it", "没有已注册的适配可以修复"))
    rows = (
        (Text("verdict", "结论"), f"{words(finding['verdict'])}{mark}"),
        (Text("stage", "阶段"), stage),
        (Text("module", "模块"), finding.get("module")),
        (Text("operator", "算子"), finding.get("operator")),
        (Text("in", "位于"), f"{finding['operator_module']}{rank}" if finding.get("operator_module") else None),
        (Text("shapes", "形状"), ", ".join(finding.get("shapes") or [])),
        (Text("why", "原因"), Text(finding["why"], finding["why_zh"])),
        (Text("cure", "修复"), f"{healed}{mark}" if healed else None),
        (Text("captures", "捕获次数"), f"{finding['captures']} ({Text('limit', '上限')} {finding['capture_limit']})"),
        (Text("reproduction", "复现"), finding.get("reproduction")),
        (Text("kept in", "保存于"), out),
    )
    for label, value in rows:
        if value:
            output.console.print(f"{label}: {escape(str(value))}", soft_wrap=True)
