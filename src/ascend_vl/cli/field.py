"""`ascend-vl field -o OUT.json`: on a real chip, answer the open questions in 15 minutes, one file back."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ascend_vl.cli import output
from ascend_vl.language import Text


def command(
    out: Annotated[Path, typer.Option("-o", "--out", help="the report to write, or to carry on")],
    minutes: Annotated[float, typer.Option("--minutes", min=0.1, help="stop asking after this long")] = 15.0,
    probe_anyway: Annotated[
        bool, typer.Option("--probe-anyway", help="although somebody else holds memory of the chip")
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="ask again what an earlier report answers")] = False,
    model: Annotated[Path | None, typer.Option("--model", help="HiDream-O1 weights: is their text degenerate?")] = None,
    as_json: output.Json = False,
    lang: output.Lang = None,
) -> None:
    """Ask this machine's operators everything we want to know; each question runs in a process of its own."""

    def body() -> int:
        from ascend_vl.probes import field

        report = field.ask_all(
            out, minutes=minutes, anyway=probe_anyway, fresh=fresh, model=model, told=None if as_json else tell
        )
        if as_json:
            output.print_json(report)
        else:
            show(report, out)
        return exit_code(report)

    output.run(body, as_json=as_json, lang=lang)


def tell(label: str, finding: Any) -> None:
    """A line a question, as it is answered."""
    output.remarks.print(f"  {label}: {answered(finding)}", markup=False, soft_wrap=True)


def answered(finding: Any) -> str:
    """A finding in words."""
    word = {True: Text("fault", "故障"), False: Text("fine", "正常"), None: Text("no verdict", "无结论")}[finding.fault]
    return f"{word}: {finding.reason}"


def show(report: dict[str, Any], out: Path) -> None:
    """What to do with the file."""
    verdicts = [answer["fault"] for answer in report["answers"].values()]
    counts = Text(
        f"{verdicts.count(False)} fine, {verdicts.count(True)} faults, {verdicts.count(None)} without a verdict",
        f"{verdicts.count(False)} 项正常，{verdicts.count(True)} 项故障，{verdicts.count(None)} 项无结论",
    )
    if report["emulated"]:
        emulated = Text("emulated: no evidence about hardware", "模拟环境：不构成硬件证据")
        output.console.print(f"{emulated}", markup=False)
    output.console.print(f"{out}: {counts}", markup=False, soft_wrap=True)
    look = Text(
        "Keys, names and addresses were taken out; look before you send it.",
        "已去除密钥、名称与地址；发送前请自行检查。",
    )
    output.console.print(str(look), markup=False)


def exit_code(report: dict[str, Any]) -> int:
    """1 when a fault was found, 2 when nothing got a verdict, else 0."""
    verdicts = [answer["fault"] for answer in report["answers"].values()]
    if any(verdicts):
        return 1
    return 0 if False in verdicts else 2
