"""Findings about environment variables."""

import re

from ascend_vl.plan.lint import findings
from ascend_vl.plan.lint.container import count_devices
from ascend_vl.plan.lint.findings import Finding
from ascend_vl.plan.lint.serve_command import Serve
from ascend_vl.plan.lint.shell import Word
from ascend_vl.rules import table
from ascend_vl.rules.conditions import Subject, matches


def judge(serve: Serve, exported: dict[str, Word], subject: Subject, published: bool) -> list[Finding]:
    """Findings about the variables one serve command runs with."""
    variables = exported | {name: Word(value, line) for name, value, line in serve.environment}
    return [*_by_table(serve, variables, subject), *_visible(serve, variables), *_open(serve, variables, published)]


def _by_table(serve: Serve, variables: dict[str, Word], subject: Subject) -> list[Finding]:
    found = []
    for row in table().environment:
        word = variables.get(row.name)
        for condition in row.findings:
            if not matches(condition.when, subject, serve.tensor_parallel):
                continue
            if condition.absent:
                if word is None:
                    found.append(findings.of(condition, serve.line, row.name))
            elif word is not None and _fires(condition.value, word.text):
                found.append(findings.of(condition, word.line, f"{row.name}={word.text}"))
    return found


def _fires(pattern: str | None, value: str) -> bool:
    return pattern is None or re.search(pattern, value.strip(), re.IGNORECASE) is not None


def _visible(serve: Serve, variables: dict[str, Word]) -> list[Finding]:
    word, ways = variables.get("ASCEND_RT_VISIBLE_DEVICES"), serve.tensor_parallel
    count = count_devices(word.text) if word else None
    if word is None or count is None or ways is None or count >= ways:
        return []
    what = f"ASCEND_RT_VISIBLE_DEVICES={word.text}, --tensor-parallel-size {ways}"
    return [findings.named("lint-too-many-visible", word.line, what)]


def _open(serve: Serve, variables: dict[str, Word], published: bool) -> list[Finding]:
    host = serve.last("--host")
    listens = host is not None and host.value in ("0.0.0.0", "::")
    if (not listens and not published) or serve.last("--api-key") or "VLLM_API_KEY" in variables:
        return []
    line, what = (host.line, f"--host {host.value}") if host else (serve.line, "-p")
    return [findings.named("lint-open-to-all", line, what)]
