"""`ascend-vl compare BASE CANDIDATE`: judge two recorded runs."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from ascend_vl.cli import output
from ascend_vl.language import Text
from ascend_vl.verify.wording import words


def command(
    base: Annotated[Path, typer.Argument(help="a RUN directory, or JSONL of {id, text[, token_ids, fields]}")],
    candidate: Annotated[Path, typer.Argument(help="the run to judge")],
    require: Annotated[
        list[str] | None, typer.Option("--require", help="NAME=V for every case, NAME.mean=V, NAME=LO..HI; repeatable")
    ] = None,
    recipe: Annotated[str, typer.Option(help="named requirements, used without --require: default, port")] = "default",
    as_json: output.Json = False,
    lang: output.Lang = None,
) -> None:
    """Judge two recorded runs: exit 0 pass, 1 fail, 2 no verdict."""

    def body() -> int:
        from ascend_vl.verify import comparison, requirements, runs

        chosen = requirements.parse(require) if require else requirements.of_recipe(recipe)
        result = comparison.compare(runs.read_run(base), runs.read_run(candidate), chosen)
        if as_json:
            output.print_json(result)
        else:
            show(result, recipe=None if require else recipe)
        return 0 if result["verdict"] == "pass" else 1

    output.run(body, as_json=as_json, lang=lang)


def show(result: dict[str, Any], recipe: str | None) -> None:
    """The comparison for a reader: the table of means, what was required (of which recipe), each case that failed."""
    table = Table("", str(Text("mean", "均值")), str(Text("lowest", "最低")), str(Text("measured", "已测")))
    for name, totals in result["summary"].items():
        values = _number(totals["mean"]), _number(totals["min"]), f"{totals['measured']}/{len(result['cases'])}"
        table.add_row(str(words(name)), *values)
    output.console.print(table)
    if recipe:
        rules = ", ".join(item["require"] for item in result["required"])
        named = Text("default set", "默认") if recipe == "default" else Text(f"recipe {recipe}", f"方案 {recipe}")
        required = Text(f"required ({named.en})", f"要求（{named.zh}）")
        output.console.print(f"{required}: {rules}", soft_wrap=True)
    for note in result["notes"]:
        output.console.print(f"! {escape(str(Text(**note)))}", soft_wrap=True)
    for item in result["required"]:
        mark = "[green]✓[/green]" if item["passed"] else "[red]✗[/red]"
        cases = ", ".join(map(str, item["failed_cases"][:8]))
        why = str(Text(item["why"] or "", item["why_zh"] or ""))
        output.console.print(f"{mark} {item['require']}  {escape(why)} {escape(cases)}")
    for name in ("only_in_base", "only_in_candidate", "asked_otherwise"):
        if result[name]:
            output.console.print(f"[red]✗[/red] {words(name)}: {escape(', '.join(result[name][:8]))}")
    failed = {name for item in result["required"] if not item["passed"] for name in item["failed_cases"]}
    for case in [case for case in result["cases"] if case["id"] in failed][:8]:
        output.console.print(f"  {escape(case['id'])}: {escape(explain(case))}", soft_wrap=True)
    broken = [
        (case["id"], case["degenerate"]["candidate"]) for case in result["cases"] if case["degenerate"]["candidate"]
    ]
    for name, kinds in broken[:8]:
        flags = ", ".join(str(words(kind)) for kind in kinds)
        output.console.print(f"! {escape(name)}: {words('flags')}: {flags}", soft_wrap=True)
    if result["emulated"]:
        output.console.print(
            str(
                Text(
                    "one side ran on the NPU emulator: emulated, says nothing about hardware",
                    "其中一方运行于 NPU 模拟器（emulated），不代表硬件结果",
                )
            )
        )
    output.console.print(f"{Text('verdict', '结论')}: {words(result['verdict'])}")


def explain(case: dict[str, Any]) -> str:
    """One line on a case: the first stage that differs, where the answers fork and how close it was."""
    parts = []
    first = case["first_difference"]
    if first:
        entry = next(entry for entry in case["chain"] if entry["stage"] == first)
        detail = Text(entry["detail"], entry["detail_zh"])
        parts.append(f"{Text('first difference', '首个差异')}: {words(first)} ({detail})")
    if case["numbers"]:
        parts.append(f"{Text('numbers', '数字')}: {case['numbers']['base']} / {case['numbers']['candidate']}")
    fork = case["fork"]
    if fork and fork["gap_nats"] is not None:
        tie = f", {Text('a near tie', '近似平局')}" if fork["near_tie"] else ""
        parts.append(f"{Text('fork at token', '分叉于 token')} {fork['position']}: {fork['gap_nats']:.3g} nats{tie}")
    return "; ".join(parts) or str(Text("no stage differs", "各阶段无差异"))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
