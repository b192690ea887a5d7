"""A `vllm serve` command as flags with values, and the findings about them."""

import json
import re
from dataclasses import dataclass

from ascend_vl.language import Text
from ascend_vl.plan.lint import findings
from ascend_vl.plan.lint.findings import Finding
from ascend_vl.plan.lint.shell import Command, Word
from ascend_vl.rules import table, vllm_flags
from ascend_vl.rules.conditions import Subject, matches
from ascend_vl.rules.rows import Condition, Flag

NUMBERS = {
    "--max-model-len",
    "--tensor-parallel-size",
    "--gpu-memory-utilization",
    "--max-num-seqs",
    "--max-num-batched-tokens",
    "--data-parallel-size",
    "--pipeline-parallel-size",
    "--port",
    "--nnodes",
}
_SUFFIX = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}


@dataclass(frozen=True)
class Use:
    """One flag as it was written. `name` is canonical; `positive` false for the negative form; values as words."""

    name: str
    spelled: str
    values: tuple[str, ...]
    line: int
    positive: bool = True

    @property
    def value(self) -> str:
        """Its value, "" for none."""
        return " ".join(self.values)


@dataclass(frozen=True)
class Serve:
    """A serve command: the words before the flags (`vllm serve`, or python -m ...), the model, the flags in order."""

    start: tuple[str, ...]
    model: str
    uses: tuple[Use, ...]
    line: int
    environment: tuple[tuple[str, str, int], ...] = ()

    def last(self, name: str) -> Use | None:
        """The use that wins."""
        return next((use for use in reversed(self.uses) if use.name == name), None)

    @property
    def tensor_parallel(self) -> int | None:
        """Chips asked for; 1 when the flag is absent, None when it cannot be read (a variable)."""
        use = self.last("--tensor-parallel-size")
        if use is None:
            return 1
        number = read_number(use.value)
        return int(number) if number is not None and number == int(number) else None


def read_number(text: str) -> float | None:
    """A number as vLLM reads it: 16384, 0.9, 16k (thousands), 16K (1024); None for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgKMG])?", text.strip())
    if match is None:
        return None
    return float(match.group(1)) * _SUFFIX.get(match.group(2) or "", 1)


def as_serve(command: Command) -> Serve | None:
    """The command as a serve command, None when it is another one."""
    words = command.words
    texts = [word.text for word in words]
    if texts[:2] == ["vllm", "serve"] or (texts[0].endswith("/vllm") and texts[1:2] == ["serve"]):
        start = 2
    elif (
        texts[0].startswith("python") and texts[1:2] == ["-m"] and texts[2:3] == ["vllm.entrypoints.openai.api_server"]
    ):
        start = 3
    elif (
        texts[0].split("/")[-1].startswith("python")
        and texts[1:3] == ["-m", "ascend_vl.serve.launch"]
        and texts[3:4] == ["serve"]
    ):
        start = 4
    else:
        return None
    model, uses = _uses(words[start:])
    environment = tuple((name, word.text, word.line) for name, word in command.assignments)
    return Serve(tuple(texts[:start]), model, tuple(uses), command.line, environment)


def canonical(spelled: str) -> tuple[Flag | None, str, bool]:
    """(row, canonical name, positive) of a flag in any spelling; the row is None for a flag without one."""
    name = spelled if not spelled.startswith("--") else "--" + spelled[2:].replace("_", "-")
    for row in table().flags:
        if name == row.name or name in row.spellings:
            return row, row.name, True
        if name == row.negative or (row.takes == "nothing" and name == f"--no-{row.name[2:]}"):
            return row, row.name, False
    return None, name, True


def _uses(words: tuple[Word, ...]) -> tuple[str, list[Use]]:
    model, index = "", 0
    uses: list[Use] = []
    while index < len(words):
        text = words[index].text
        if not _is_flag(text):
            if not model and not uses:
                model = text
            index += 1
            continue
        spelled, equals, inline = text.partition("=")
        row, name, positive = canonical(spelled)
        line, index = words[index].line, index + 1
        values: list[str] = [inline] if equals else []
        takes = row.takes if row else "many"
        while not equals and index < len(words) and takes != "nothing" and not _is_flag(words[index].text):
            values.append(words[index].text)
            index += 1
            if takes in ("value", "json"):
                break
        if name == "--model" and values and not model:
            model = values[0]
        uses.append(Use(name, spelled, tuple(values), line, positive))
    return model, uses


def _is_flag(text: str) -> bool:
    return (text.startswith("--") and len(text) > 2) or bool(re.match(r"^-[A-Za-z]", text))


def judge(serve: Serve, subject: Subject) -> list[Finding]:
    """Findings about the flags of one command."""
    return [*unknown(serve, subject), *_repeated(serve), *_shape(serve), *_by_table(serve, subject), *_heads(serve)]


def unknown(serve: Serve, subject: Subject) -> list[Finding]:
    """Options that no vLLM there has, with the one that was probably meant or the releases that have it."""
    found = []
    for use in serve.uses:
        if "$" in use.spelled or vllm_flags.is_known(use.spelled, subject.kind, subject.version):
            continue
        fix = None
        if releases := vllm_flags.elsewhere(use.spelled):
            names = ", ".join(releases)
            fix = Text(f"These releases have it: {names}.", f"以下版本有该参数：{names}。")
        elif meant := vllm_flags.nearest(use.spelled, subject.kind, subject.version):
            fix = Text(f"Did you mean {meant}?", f"是否想用 {meant}？")
        found.append(findings.named("lint-flag-unknown", use.line, use.spelled, fix=fix))
    return found


def _repeated(serve: Serve) -> list[Finding]:
    found = []
    for name in dict.fromkeys(use.name for use in serve.uses):
        uses = [use for use in serve.uses if use.name == name]
        if len(uses) == 1 or not name.startswith("-"):
            continue
        different = len({(use.value, use.positive) for use in uses}) > 1
        what = ", ".join(f"{use.spelled} {use.value}".strip() for use in uses)
        found.append(
            findings.named("lint-repeated-contradiction" if different else "lint-repeated", uses[-1].line, what)
        )
    return found


def _shape(serve: Serve) -> list[Finding]:
    found = []
    for use in serve.uses:
        row, _, _ = canonical(use.spelled)
        if row is None or row.takes == "nothing":
            continue
        if not use.values:
            found.append(findings.named("lint-value-missing", use.line, use.spelled))
        elif row.takes == "json" and use.value.lstrip()[:1] in "{[" and not _is_json(use.value):
            found.append(findings.named("lint-json-invalid", use.line, f"{use.spelled} {use.value}"))
        elif use.name in NUMBERS and "$" not in use.value and read_number(use.value) is None:
            found.append(findings.named("lint-number-invalid", use.line, f"{use.spelled} {use.value}"))
    return found


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _by_table(serve: Serve, subject: Subject) -> list[Finding]:
    found = []
    for row in table().flags:
        use = serve.last(row.name)
        for condition in row.findings:
            if matches(condition.when, subject, serve.tensor_parallel) and fires(condition, use):
                line = use.line if use else serve.line
                what = f"{use.spelled} {use.value}".strip() if use else row.name
                found.append(findings.of(condition, line, what))
    return found


def fires(condition: Condition, use: Use | None) -> bool:
    """Whether the condition's own part holds for that use of the flag."""
    if condition.absent:
        return use is None or (use.positive and use.name == "--enable-prefix-caching")
    if use is None or not use.positive:
        return False
    if condition.above is not None:
        number = read_number(use.value)
        return number is not None and number > condition.above
    if condition.sizes_above is not None:
        return len(capture_sizes(use.value)) > condition.sizes_above
    return condition.value is None or re.search(condition.value, use.value, re.IGNORECASE) is not None


def capture_sizes(text: str) -> list[int]:
    """The graph capture sizes in a compilation config, [] when there are none."""
    match = re.search(r"cudagraph_capture_sizes[\"']?\s*:\s*\[([^\]]*)\]", text)
    return [int(size) for size in re.findall(r"\d+", match.group(1))] if match else []


def _heads(serve: Serve) -> list[Finding]:
    use, ways = serve.last("--tensor-parallel-size"), serve.tensor_parallel
    if use is None or ways is None or (ways >= 1 and 16 % ways == 0):
        return []
    return [findings.named("lint-heads-not-divided", use.line, f"{use.spelled} {use.value}")]
