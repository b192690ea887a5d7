"""`ascend-vl doctor`: facts, version verdict, probes, causes, and the exact next command."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from ascend_vl.cli import machine_options, output
from ascend_vl.cli.field import answered, tell
from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text

if TYPE_CHECKING:
    from ascend_vl.machine import Machine
    from ascend_vl.plan.diagnosis import Diagnosis
    from ascend_vl.plan.field_report import FieldReport
    from ascend_vl.rules.explain import Explanation
    from ascend_vl.rules.symptoms import Recognised, Suspect

_WORDS = {
    "healthy": Text("healthy", "正常"),
    "degraded": Text("degraded but usable", "可用但有问题"),
    "cannot-serve": Text("cannot serve", "无法部署"),
}


def command(
    chip: machine_options.Chip = None,
    chips: machine_options.Chips = None,
    memory: machine_options.Memory = None,
    held: machine_options.Held = None,
    cann: machine_options.Cann = None,
    driver: machine_options.Driver = None,
    vllm_ascend: machine_options.VllmAscend = None,
    probe: Annotated[bool, typer.Option("--probe", help="ask this chip's operators, each in a child process")] = False,
    probe_anyway: Annotated[bool, typer.Option("--probe-anyway", help="probe a chip somebody else uses")] = False,
    server: Annotated[str | None, typer.Option("--server", help="a running server's URL")] = None,
    api_key: Annotated[str | None, typer.Option(envvar="ASCEND_VL_API_KEY", help="that server's key")] = None,
    symptom: Annotated[str | None, typer.Option("--symptom", help="an error text, or the path of a log")] = None,
    field: Annotated[Path | None, typer.Option("--field", help="a report of ascend-vl field, from any machine")] = None,
    explain: Annotated[str | None, typer.Option("--explain", help="a rule, adaptation or error code")] = None,
    as_json: output.Json = False,
    lang: output.Lang = None,
) -> None:
    """What is here, what works, why not, and what to do next. Exit 1 when something is wrong, 2 without a verdict."""

    def body() -> int:
        given = (chip, chips, memory, cann, driver, vllm_ascend, held)
        if explain is not None:
            return explained(explain, as_json)
        if field is not None:
            if any(one is not None for one in (*given, server)) or probe or probe_anyway:
                raise report_says_which()
            return told(from_report(field), as_json)
        machine = machine_options.machine(*given, hashes=symptom is None)
        if symptom is not None:
            return diagnosed(symptom, machine, as_json)
        return told(from_machine(machine, probe or probe_anyway, probe_anyway, server, api_key), as_json)

    output.run(body, as_json=as_json, lang=lang)


def report_says_which() -> AscendVLError:
    """The error for another machine beside a field report."""
    return AscendVLError(
        "usage",
        Text("--field stands alone.", "--field 不能与其他机器选项同用。"),
        Text("The report says which machine it was made on.", "报告本身说明了它来自哪台机器。"),
        Text("Leave out --probe, --server and the options of a machine.", "去掉 --probe、--server 与机器选项。"),
    )


def from_report(path: Path) -> "Diagnosis":
    """What a field report means. Raises AscendVLError `field-unreadable`."""
    from ascend_vl.plan.diagnosis import examine
    from ascend_vl.plan.field_report import read

    report = read(path)
    return examine(report.machine, field=report)


def from_machine(machine: "Machine", probe: bool, anyway: bool, server: str | None, api_key: str | None) -> "Diagnosis":
    """What is known of a machine, its operators asked and a server read where wanted."""
    from ascend_vl.plan.diagnosis import examine, run_probes, server_status

    findings = run_probes(machine, anyway, tell) if probe else None
    if not server:
        return examine(machine, findings)
    found = examine(machine, findings, server_status(server, api_key))
    return replace(found, next_command=f"ascend-vl ask {server} QUESTION --image PICTURE")


def told(diagnosis: "Diagnosis", as_json: bool) -> int:
    """Show it; the exit code."""
    if as_json:
        output.print_json(diagnosis.to_json())
    else:
        show(diagnosis)
    return diagnosis.exit_code


def explained(wanted: str, as_json: bool) -> int:
    """Print what is known about one id. Raises AscendVLError `nothing-to-explain`."""
    from ascend_vl.rules.explain import explain
    from ascend_vl.rules.rows import spelled

    found = explain(wanted) or emulated_fault(wanted)
    if found is None:
        raise AscendVLError(
            "nothing-to-explain",
            Text(f"Nothing is known about {wanted!r}.", f"没有关于 {wanted!r} 的内容。"),
            Text(
                "It is no rule, finding, adaptation, release or error code.", "它不是规则、检查项、适配、版本或错误码。"
            ),
            Text("Copy the id from the square brackets of doctor or lint.", "请复制 doctor 或 lint 方括号中的编号。"),
        )
    if as_json:
        lines = [{"label": str(label), "text": str(text)} for label, text in found.lines]
        output.print_json(
            {
                "schema": 1,
                "id": found.id,
                "kind": str(found.kind),
                "title": str(found.title),
                "lines": lines,
                "evidence": list(found.evidence),
            }
        )
        return 0
    output.console.print(f"[bold]{escape(found.id)}[/bold] ({found.kind}): {escape(str(found.title))}", soft_wrap=True)
    for label, text in found.lines:
        output.console.print(f"  {label}: {text}", markup=False, soft_wrap=True)
    for link in found.evidence:
        output.console.print(f"  {spelled(link)}", markup=False, soft_wrap=True)
    return 0


def emulated_fault(name: str) -> "Explanation | None":
    """A fault of the NPU emulator, as its catalogue has it (in English)."""
    from ascend_vl.rules.explain import Explanation
    from npu_emulator.faults import FAULTS

    fault = FAULTS.get(name)
    if fault is None:
        return None
    kind = Text("fault of the NPU emulator", "NPU 模拟器的故障")
    how = Text(f"{fault.evidence}: {fault.source}", f"{fault.evidence}：{fault.source}")
    return Explanation(fault.name, kind, Text(fault.effect, fault.effect), ((Text("known how", "依据"), how),), ())


def diagnosed(symptom: str, machine: "Machine", as_json: bool) -> int:
    """Rank the causes of an error text or log: 1 when something was recognised, 2 when not."""
    from ascend_vl.machine.checks import subject_of
    from ascend_vl.rules.symptoms import recognise, suspects

    recognised = recognise(_symptom_text(symptom))
    ranked = suspects(recognised, subject_of(machine))
    step = after_symptom(ranked)
    if as_json:
        output.print_json(symptom_json(recognised, ranked) | {"next": step})
    elif recognised:
        show_symptom(recognised, ranked, step)
    else:
        unknown = Text(
            "Not recognised. That does not mean healthy: the catalogue knows no such error.",
            "未识别。这不代表正常：目录中没有该错误。",
        )
        output.console.print(f"{unknown}\n{Text('next', '下一步')}: {step}", markup=False, soft_wrap=True)
    return 1 if recognised else 2


def after_symptom(ranked: "list[Suspect]") -> str:
    """The exact command to run next."""
    if not ranked:
        return "ascend-vl support -o support.zip"
    first = ranked[0].cause
    return "ascend-vl serve MODEL" if first.adaptation else f"ascend-vl doctor --explain {first.id}"


def symptom_json(recognised: "list[Recognised]", ranked: "list[Suspect]") -> dict[str, Any]:
    """Schema 1 of `doctor --symptom --json`."""
    return {
        "schema": 1,
        "recognised": [
            {"id": one.symptom.id, "title": str(one.symptom.title), "line": one.line, "text": one.text}
            for one in recognised
        ],
        "causes": [
            {
                "id": one.cause.id,
                "score": one.score,
                "because": str(one.because),
                "text": str(one.cause.text),
                "do": str(one.cause.do),
                "adaptation": one.cause.adaptation,
                "evidence": list(one.cause.evidence),
            }
            for one in ranked
        ],
    }


def show_symptom(recognised: "list[Recognised]", ranked: "list[Suspect]", step: str) -> None:
    """What was recognised and where, then the causes with what to do."""
    from ascend_vl.rules.rows import spelled

    for one in recognised:
        head = f"{Text('line', '行')} {one.line}: {escape(str(one.symptom.title))}"
        output.console.print(f"[bold]{head}[/bold]  [dim]\\[{one.symptom.id}][/dim]", soft_wrap=True)
        output.console.print(f"  {one.text}", markup=False, soft_wrap=True)
    output.console.print(f"{Text('causes, most likely first', '原因（由最可能开始）')}:", markup=False)
    for number, suspect in enumerate(ranked, 1):
        score = f"{suspect.score:.2f}, {suspect.because}"
        output.console.print(f"{number}. {suspect.cause.text} ({score})", markup=False, soft_wrap=True)
        output.console.print(f"   {Text('do', '处理')}: {suspect.cause.do}", markup=False, soft_wrap=True)
        output.console.print(
            f"   {'; '.join(map(spelled, suspect.cause.evidence))}", markup=False, style="dim", soft_wrap=True
        )
    output.console.print(f"{Text('next', '下一步')}: {step}", markup=False, soft_wrap=True)


def _symptom_text(symptom: str) -> str:
    """The contents when it names a file, else the text itself."""
    try:
        path = Path(symptom)
        if path.is_file():
            return path.read_bytes().decode("utf-8", "replace")
    except (OSError, ValueError):
        pass
    return symptom


def show(diagnosis: "Diagnosis") -> None:
    """Facts, verdict, adaptations, troubles, next command."""
    from ascend_vl.rules.rows import spelled

    console = output.console
    if diagnosis.server:
        console.print(f"[bold]{Text('this machine, which asks', '发起询问的本机')}[/bold]")
    for label, value in diagnosis.facts:
        console.print(f"[bold]{label}[/bold]: {escape(value)}", soft_wrap=True)
    if diagnosis.verdict is not None:
        verdict = diagnosis.verdict
        console.print(f"[bold]{Text('release', '版本结论')}[/bold]: {verdict.words}", soft_wrap=True)
        console.print(f"  {verdict.why}", markup=False, soft_wrap=True)
        for line in verdict.derived:
            console.print(f"  {line}", markup=False, soft_wrap=True)
        if verdict.image:
            console.print(f"  {Text('or move to', '或改用')}: {verdict.image}", markup=False, soft_wrap=True)
        for link in verdict.evidence:
            console.print(f"  {spelled(link)}", markup=False, style="dim", soft_wrap=True)
    for outcome in diagnosis.adaptations:
        mark = "*" if outcome.in_force else " "
        console.print(f"{mark} {outcome.id}: {outcome.state} ({outcome.reason})", markup=False, soft_wrap=True)
    for trouble in diagnosis.troubles:
        colour = output.COLOURS[trouble.severity]
        head = f"[{colour}]{output.SEVERITIES[trouble.severity]}[/{colour}] {escape(str(trouble.what))}"
        console.print(f"{head}  [dim]\\[{trouble.id}][/dim]", soft_wrap=True)
        console.print(f"  {Text('why', '原因')}: {trouble.why}", markup=False, soft_wrap=True)
        console.print(f"  {Text('do', '处理')}: {trouble.do}", markup=False, soft_wrap=True)
    if diagnosis.field is not None:
        show_field(diagnosis.field)
    if diagnosis.server:
        console.print(f"[bold]{Text('the server', '该服务')}[/bold]")
    for line in diagnosis.server:
        console.print(line, markup=False, soft_wrap=True)
    console.print(f"[bold]{_WORDS[diagnosis.health]}[/bold]")
    console.print(f"{Text('next', '下一步')}: {diagnosis.next_command}", markup=False, soft_wrap=True)


def show_field(report: "FieldReport") -> None:
    """Every answer, then the guesses that they retire."""
    console = output.console
    console.print(f"[bold]{Text('answers of the field report', '现场报告的答案')}[/bold]")
    for label, answer in report.answers.items():
        console.print(f"  {label}: {answered(answer)}", markup=False, soft_wrap=True)
    emulated = report.machine.emulated
    heading = Text("guesses retired", "已消除的推测")
    if emulated:
        heading = Text(
            "answered, but emulated: every guess about hardware stands",
            "已回答，但为 emulated（模拟）：关于硬件的推测仍未消除",
        )
    console.print(f"[bold]{heading}[/bold]")
    for one in report.settled:
        console.print(f"  {one.title} [{one.id}]", markup=False, soft_wrap=True)
        console.print(f"    {Text('guess', '推测')}: {one.guess}", markup=False, soft_wrap=True)
        console.print(f"    {Text('answer', '答案')}: {one.answer}", markup=False, soft_wrap=True)
