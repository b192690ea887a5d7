"""`ascend-vl lint [FILE|-]`: findings in somebody's serve or docker command."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from ascend_vl.cli import output
from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text

if TYPE_CHECKING:
    from ascend_vl.plan.lint import Report


def command(
    file: Annotated[str, typer.Argument(help="a script, document or compose file; - reads the standard input")] = "-",
    chip: Annotated[str | None, typer.Option("--chip", help="the chip or card it is meant for")] = None,
    vllm_ascend: Annotated[str | None, typer.Option("--vllm-ascend", help="the release it is meant for")] = None,
    as_json: output.Json = False,
    lang: output.Lang = None,
) -> None:
    """Findings in a vllm serve or docker run command, script or compose file. Exit 1 when one is an error."""

    def body() -> int:
        from ascend_vl.plan.lint import lint

        report = lint(read(file), chip, vllm_ascend)
        if as_json:
            output.print_json(
                {
                    "schema": 1,
                    "chip": report.kind,
                    "vllm_ascend": report.version,
                    "findings": [finding.to_json() for finding in report.findings],
                    "repaired": report.repaired,
                    "remaining": [finding.to_json() for finding in report.remaining],
                }
            )
        else:
            show(report)
        return report.exit_code

    output.run(body, as_json=as_json, lang=lang)


def read(file: str) -> str:
    """The text of a file or of the standard input. Raises AscendVLError `file-unreadable`."""
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise AscendVLError(
            "file-unreadable",
            Text(f"{file} cannot be read.", f"无法读取 {file}。"),
            Text(str(error), str(error)),
            Text(
                "Give the path of a text file, or - for the standard input.",
                "请提供文本文件路径，或用 - 读取标准输入。",
            ),
        ) from None
    return data.decode("utf-8", "replace")


def show(report: "Report") -> None:
    """Findings with line, severity, reason and cure; then the repaired command."""
    console = output.console
    where = f"{report.kind or Text('chip not known', '芯片未知')}, vllm-ascend {report.version or '?'}"
    console.print(f"{Text('judged for', '按此检查')}: {where}", markup=False)
    if report.kind is None:
        console.print(
            f"  {Text('name it with --chip for the rules of a chip', '用 --chip 指定芯片以启用其规则')}", markup=False
        )
    for finding in report.findings:
        colour = output.COLOURS[finding.severity]
        word = output.SEVERITIES[finding.severity]
        head = f"{Text('line', '行')} {finding.line} [{colour}]{word}[/{colour}] {escape(str(finding.title))}"
        console.print(f"{head}: {escape(finding.what)}  [dim]\\[{finding.rule}][/dim]", soft_wrap=True)
        console.print(f"  {finding.text} {finding.fix}", markup=False, soft_wrap=True)
    if not report.findings:
        console.print(str(Text("Nothing found.", "未发现问题。")), markup=False)
    if report.repaired:
        console.print(f"\n{Text('repaired', '修正后')}:", markup=False)
        console.print(report.repaired, markup=False, soft_wrap=True)
    if report.remaining:
        console.print(f"\n{Text('still to do by hand', '仍需手动处理')}:", markup=False)
        for finding in report.remaining:
            console.print(f"  {finding.title}: {finding.what}. {finding.fix}", markup=False, soft_wrap=True)
