"""`ascend-vl report RUN... -o OUT.html` and `report --check`: the accuracy report, one file, recomputable."""

from pathlib import Path
from typing import Annotated

import typer

from ascend_vl.cli import output
from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text


def command(
    run: Annotated[list[Path], typer.Argument(help="a directory that verify wrote, or RUNs (the first is the base)")],
    out: Annotated[
        Path, typer.Option("--output", "-o", help="HTML file; Markdown in both languages goes beside it")
    ] = Path("report.html"),
    check: Annotated[
        bool, typer.Option("--check", help="recompute every number from the files; exit 1 when one differs")
    ] = False,
    require: Annotated[
        list[str] | None, typer.Option("--require", help="NAME=V, NAME.mean=V, NAME=LO..HI; repeatable")
    ] = None,
    recipe: Annotated[str, typer.Option(help="named requirements, used without --require: default, port")] = "default",
    as_json: output.Json = False,
    lang: output.Lang = None,
) -> None:
    """Write the report of recorded runs, or check one (a RUN, a verify directory, or a report's HTML)."""

    def body() -> int:
        from ascend_vl.verify import report

        if check:
            return _check(run, as_json)
        try:
            data = report.write(run, out, require, recipe)
        except OSError as error:
            raise AscendVLError(
                "file-unwritable",
                Text(f"{out} cannot be written.", f"无法写入 {out}。"),
                Text(f"{error.strerror}.", f"{error.strerror}。"),
                Text("Name another file with -o.", "请用 -o 指定其他文件。"),
            ) from None
        if as_json:
            places = {"html": out, "markdown": out.with_suffix(".md"), "markdown_zh": out.with_suffix(".zh.md")}
            output.print_json({"schema": 1, **{k: str(v) for k, v in places.items()}, "verdict": data["verdict"]})
        else:
            for place in (out, out.with_suffix(".md"), out.with_suffix(".zh.md")):
                output.console.print(str(place), markup=False, soft_wrap=True)
        return 0

    output.run(body, as_json=as_json, lang=lang)


def _check(paths: list[Path], as_json: bool) -> int:
    from ascend_vl.verify import report

    problems = {str(path): report.check(path) for path in paths}
    bad = any(problems.values())
    if as_json:
        output.print_json({"schema": 1, "problems": problems, "verdict": "fail" if bad else "pass"})
    else:
        for path, found in problems.items():
            for line in found:
                output.console.print(f"✗ {line}", markup=False, soft_wrap=True)
            if not found:
                output.console.print(
                    f"✓ {path}: {Text('every number recomputes', '所有数字均可重新计算')}", markup=False
                )
    return 1 if bad else 0
