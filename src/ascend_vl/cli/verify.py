"""`ascend-vl verify MODEL`: the staged verification, ending in a report."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from ascend_vl.cli import output
from ascend_vl.language import Text
from ascend_vl.verify.wording import words

_MARKS = {"passed": "[green]✓[/green]", "failed": "[red]✗[/red]", "noted": "·", "not run": "○"}


def command(
    model: Annotated[Path, typer.Argument(help="a model directory")],
    stages: Annotated[str, typer.Option(help="A dummy weights, B real weights, C against Transformers")] = "A,B,C",
    cases: Annotated[Path | None, typer.Option(help="JSONL of cases; default: the bundled ones")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, bfloat16 or float16; default: the plan's")] = None,
    out: Annotated[Path | None, typer.Option(help="directory for runs, verdict and report; new or empty")] = None,
    base: Annotated[
        Path | None, typer.Option(help="a recorded RUN to compare with, instead of Transformers here")
    ] = None,
    recipe: Annotated[str, typer.Option(help="default, or port: the HiDream port's own procedure")] = "default",
    require: Annotated[
        list[str] | None, typer.Option("--require", help="NAME=V, NAME.mean=V, NAME=LO..HI; repeatable")
    ] = None,
    as_json: output.Json = False,
    lang: output.Lang = None,
) -> None:
    """Verify a model in stages: exit 0 passed, 1 a stage failed, 2 no verdict."""

    def body() -> int:
        from ascend_vl.verify import requirements, runs, semantic, targets, verification
        from ascend_vl.verify import stages as registry

        targets.check_dtype(dtype)
        keys = registry.chosen(stages)
        chosen = requirements.parse(require) if require else requirements.of_recipe(recipe)
        semantic.require(chosen)
        place = Path(targets.parse(str(model)).place)
        if base:
            # Unusable answers must not cost the start of an engine.
            runs.read_run(base)
        with output.remarks.status("") as shown:
            session = registry.Session(
                model=place,
                cases=cases or verification.default_cases(),
                out=out or verification.default_out(place),
                requirements=chosen,
                dtype=dtype,
                base=base,
                progress=lambda text: shown.update(escape(text)),
            )
            record = verification.verify(session, keys, recipe)
        if as_json:
            output.print_json({**record, "out": str(session.out)})
        else:
            show(record, session.out)
        return 0 if record["verdict"] == "pass" else 1

    output.run(body, as_json=as_json, lang=lang)


def show(record: dict[str, Any], out: Path) -> None:
    """The stages and their checks, what was not run, where everything is."""

    def line(text: str) -> None:
        output.console.print(text, highlight=False, soft_wrap=True)

    for stage in record["stages"]:
        why = words(stage["why_not"]) if stage["why_not"] else f"{stage['seconds']:.0f} s"
        line(f"{_MARKS[stage['status']]} {stage['key']} {Text(**stage['title'])}: {words(stage['status'])} ({why})")
        for check in stage["checks"]:
            name, detail = words(check["name"]), Text(check["detail"], check["detail_zh"])
            line(f"    {_MARKS[check['status']]} {escape(str(name))}: {escape(str(detail))}")
    emulated = Text(" (emulated: says nothing about hardware)", "（模拟 emulated：不代表硬件结果）")
    mark = str(emulated) if record["emulated"] else ""
    line(f"{Text('status', '状态')}: {', '.join(str(words(w)) for w in record['statuses']) or '-'}{mark}")
    line(f"{Text('verdict', '结论')}: {words(record['verdict'])}{mark}")
    line(f"{Text('report', '报告')}: {escape(str(out / 'report.html'))}")
