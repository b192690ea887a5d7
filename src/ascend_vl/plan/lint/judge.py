"""The whole of it: read the text, find out the machine, judge every part, repair."""

import re

from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text
from ascend_vl.machine.describe import unknown_chip
from ascend_vl.machine.products import named_product
from ascend_vl.plan.lint import compose, container, environment, findings, kubernetes, repair, serve_command, systemd
from ascend_vl.plan.lint.container import Container
from ascend_vl.plan.lint.findings import ORDER, Finding, Report
from ascend_vl.plan.lint.serve_command import Serve
from ascend_vl.plan.lint.shell import Script, Word, read_script
from ascend_vl.rules import table
from ascend_vl.rules.conditions import Subject

_NAMED_FILE = re.compile(r"(?<![A-Za-z0-9_/])(?:vllm|vllm_ascend|vllm-ascend)/[A-Za-z0-9_./-]+\.py(?![A-Za-z0-9_])")
# Chinese letters count as \w, so word borders are spelled out.
_CONFIG_EDIT = re.compile(
    r"config\.json.*(?<![A-Za-z-])dtype(?![A-Za-z])|(?<![A-Za-z-])dtype(?![A-Za-z]).*config\.json"
)
LONGEST = 1_000_000


def lint(text: str, chip: str | None = None, version: str | None = None) -> Report:
    """Judge a command, script, document, compose file, Kubernetes object or systemd unit.

    `chip` (a product or chip name) and `version` (vllm-ascend) say where it is meant to run; without them they are
    taken from the image's tag where one stands. Raises AscendVLError `unknown-chip` or `lint-too-long`.
    """
    if len(text) > LONGEST:
        raise AscendVLError(
            "lint-too-long",
            Text("The text is too long to be a command.", "文本过长，不像是命令。"),
            Text(f"It has {len(text)} characters, more than {LONGEST}.", f"共 {len(text)} 个字符，超过 {LONGEST}。"),
            Text("Give the command or script itself.", "请只提供命令或脚本。"),
        )
    found, serves, containers, exported, subject = _judged(text, chip, version)
    repaired = repair.repaired(serves, containers, exported, subject, found)
    remaining: tuple[Finding, ...] = ()
    if repaired:
        rules = {finding.rule for finding in found if finding.severity != "note"}
        again = _judged(repaired, chip, subject.version)[0]
        remaining = tuple(finding for finding in again if finding.rule in rules)
    return Report(found, subject.kind, subject.version, repaired, remaining)


def _judged(
    text: str, chip: str | None, version: str | None
) -> tuple[tuple[Finding, ...], list[Serve], list[Container], dict[str, Word], Subject]:
    """What is found in the text, and what was understood: commands, containers, variables, the machine."""
    services = compose.read_compose(text)
    if services is None:
        services = kubernetes.read_kubernetes(text)
    script = Script() if services is not None else read_script(systemd.as_script(text))
    containers = services if services is not None else [c for c in map(container.as_container, script.commands) if c]
    serves = _serves(script, containers)
    subject = _machine(containers, chip, version)
    ways = next((serve.tensor_parallel for serve in serves), None)
    found = [findings.named(problem.rule, problem.line, problem.what) for problem in script.problems]
    for one in containers:
        found += container.judge(one, subject, ways)
    for serve in serves:
        found += serve_command.judge(serve, subject)
        found += environment.judge(serve, _exported(script, containers), subject, _published(containers))
    found += _edits(script)
    if not serves and not containers:
        found.append(findings.named("lint-nothing", 1, "vllm serve"))
    ordered = tuple(sorted(dict.fromkeys(found), key=lambda one: (one.line, ORDER[one.severity], one.rule)))
    return ordered, serves, containers, _exported(script, containers), subject


def _serves(script: Script, containers: list[Container]) -> list[Serve]:
    found = [serve for serve in map(serve_command.as_serve, script.commands) if serve]
    for one in containers:
        inner = compose.serve_words(one.command)
        serve = serve_command.as_serve(inner) if inner else None
        if serve is not None and all(serve.uses != other.uses for other in found):
            found.append(serve)
    return found


def _machine(containers: list[Container], chip: str | None, version: str | None) -> Subject:
    release, kind = next(
        (found for one in containers if (found := container.image_release(one.image))[0]), (None, None)
    )
    if chip is None:
        return Subject(kind, None, version or release)
    if chip.lower() == "cpu":
        return Subject("cpu", None, version or release)
    product = named_product(chip)
    if product is None:
        raise unknown_chip(chip)
    row = next(row for row in table().chips if row.id == product.chip)
    return Subject(row.kind, product.id, version or release)


def _exported(script: Script, containers: list[Container]) -> dict[str, Word]:
    found = dict(script.exported)
    for one in containers:
        found |= one.environment
    return found


def _published(containers: list[Container]) -> bool:
    return any(one.published for one in containers)


def _edits(script: Script) -> list[Finding]:
    """Framework files that are patched or named, checkpoints that are edited."""
    found = []
    text = " ".join(word.text for command in script.commands for word in command.words)
    about_vllm = "vllm" in text or any("vllm" in line for _, line in script.prose)
    for command in script.commands:
        words = [word.text for word in command.words]
        line = " ".join(words)
        patches = words[:2] == ["git", "apply"] or words[0] == "patch"
        copies = words[0] in ("cp", "mv") or words[:2] == ["docker", "cp"] or words[:2] == ["sed", "-i"]
        if (patches and about_vllm) or (copies and any(map(container.FRAMEWORK_FILE.search, words))):
            found.append(findings.named("lint-framework-patched", command.line, line))
        if words[0] == "sed" and "config.json" in line:
            found.append(findings.named("lint-checkpoint-edited", command.line, line))
    named = [(number, match.group(0)) for number, line in script.prose if (match := _NAMED_FILE.search(line))]
    if named:
        found.append(findings.named("lint-framework-named", named[0][0], ", ".join(name for _, name in named)))
    edited = next(((number, line) for number, line in script.prose if _CONFIG_EDIT.search(line)), None)
    if edited:
        found.append(findings.named("lint-checkpoint-edited", edited[0], edited[1].strip()[:80]))
    return found
