"""Questions of the field report that need a whole engine, each in a process of its own:
`python -m ascend_vl.probes.field_engine`, the request {"question", "model"} on stdin, JSON lines on stdout.

Importing this imports no torch.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ascend_vl.adaptations.record import Finding
from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text
from ascend_vl.probes.child import telling
from ascend_vl.probes.record import Note

COMMAND = (sys.executable, "-m", "ascend_vl.probes.field_engine")
# How far a tower's result for pictures together may be from that for each alone, relative.
TOGETHER = 1e-2
# Pictures of the demo that are compared, and a question about each.
PICTURES = ("row-white.png", "column-black.png", "one-white.png")
QUESTION = "What is in the picture?"
LENGTH = 2048


def conformance(model: Path, note: Note) -> Finding:
    """Do pictures together give what each gives alone, is a repeated request answered alike, are the answers right?"""
    from ascend_vl.demo.flow import PICTURES as FOLDER
    from ascend_vl.verify.cases import Case, read_cases

    with engine(model) as server:
        note(started=True)
        pictures = tuple(FOLDER / name for name in PICTURES)
        cases = [Case(f"alone {i}", QUESTION, (path,), 40) for i, path in enumerate(pictures)]
        cases.append(Case("together", QUESTION, pictures, 40))
        server.rpc_all("ascend_vl_capture_start")
        first = [server.ask(case, fresh_images=True)[0] for case in cases]
        server.rpc_all("ascend_vl_capture_take", "", "")
        again = [server.ask(case, fresh_images=True)[0] for case in cases]
        server.rpc_all("ascend_vl_capture_take", "", "")
        tower = server.rpc("ascend_vl_capture_together", len(pictures))
        server.rpc_all("ascend_vl_capture_stop")
        known = [case for case in read_cases(FOLDER / "cases.jsonl") if case.key_fields]
        right, asked = score(known, [server.ask(case)[0].text for case in known])
    repeated = sum(one.token_ids == other.token_ids for one, other in zip(first, again, strict=True))
    numbers = {
        "repeated_alike": f"{repeated} of {len(cases)}",
        "fields_right": f"{right} of {asked}",
        "together": tower["together"],
        "reversed": tower["reversed"],
        "self_agreement": tower["self_agreement"],
        "nearest": tower["nearest"],
        "answers": {case.id: answer.text[:200] for case, answer in zip(cases, first, strict=True)},
    }
    return judged(tower, repeated == len(cases), numbers)


def judged(tower: dict[str, Any], repeated: bool, numbers: dict[str, Any]) -> Finding:
    """The finding: swapped pictures, a tower that mixes them, or a repeat that is answered otherwise is a fault."""
    apart = max((tower[name]["relative"] if tower[name]["relative"] is not None else 1e9) for name in ORDERS)
    if tower["nearest"] != list(range(tower["pictures"])):
        return Finding(True, Text("pictures are swapped or mixed", "图片被交换或混淆"), numbers)
    if apart > TOGETHER:
        return Finding(True, Text(f"together they differ by {apart:.1e}", f"一起计算时相差 {apart:.1e}"), numbers)
    if not repeated:
        return Finding(True, Text("a repeated request is answered otherwise", "重复请求的回答不同"), numbers)
    fields = numbers["fields_right"]
    why = Text(
        f"together as alone ({apart:.1e}), repeats alike, fields right: {fields}",
        f"一起与单独一致（{apart:.1e}），重复一致，字段正确：{fields}",
    )
    return Finding(False, why, numbers)


ORDERS = ("together", "reversed")


def score(cases: list[Any], texts: list[str]) -> tuple[int, int]:
    """(fields that an answer states as declared, fields declared)."""
    from ascend_vl.verify.fields import declared, read_fields

    right = asked = 0
    for case, text in zip(cases, texts, strict=True):
        wanted = declared(case.key_fields)
        found = read_fields(text, wanted)
        asked += len(wanted)
        right += sum(found.get(field.name) == field.value for field in wanted)
    return right, asked


def hidream_text(model: Path, note: Note) -> Finding:
    """Is the text of these weights degenerate: empty, repeating, garbled? Pictures of the demo, and no picture."""
    from ascend_vl.demo.flow import PICTURES as FOLDER
    from ascend_vl.verify.alarms import degenerate
    from ascend_vl.verify.cases import Case

    pictures = [(), *((FOLDER / name,) for name in PICTURES)]
    cases = [Case(f"text {i}", QUESTION if paths else "1+1=?", paths, 96) for i, paths in enumerate(pictures)]
    cases.append(Case("zh", "请描述这张图片。", pictures[1], 96))
    with engine(model) as server:
        note(started=True)
        answers = [server.ask(case)[0] for case in cases]
    broken = {answer.id: kinds for answer in answers if (kinds := degenerate(answer.text, answer.token_ids))}
    numbers = {"degenerate": broken, "answers": {answer.id: answer.text[:500] for answer in answers}}
    if broken:
        named = ", ".join(sorted({kind for found in broken.values() for kind in found}))
        count = f"{len(broken)}/{len(answers)}"
        return Finding(True, Text(f"degenerate ({named}): {count}", f"退化（{named}）：{count}"), numbers)
    return Finding(False, Text("no answer is degenerate", "没有退化的回答"), numbers)


def engine(model: Path) -> Any:
    """Our server for `model`, started and stopped, as verify's client sees it. Eager: operators are the question."""
    import contextlib

    from ascend_vl.verify import targets
    from ascend_vl.verify.remote import Server

    @contextlib.contextmanager
    def started() -> Any:
        with targets.engine(model, None, enforce_eager=True, max_model_len=LENGTH) as running:
            yield Server(running.url, running.api_key)

    return started()


QUESTIONS: dict[str, Callable[[Path, Note], Finding]] = {
    "conformance": conformance,
    "hidream-text": hidream_text,
}
# What goes wrong once an engine runs on the chip; a refusal before that is no verdict about it.
FAULTS = (
    "server-failed",
    "plugin-inactive",
    "adaptation-missing",
    "no-answer",
    "server-unreachable",
    "server-refused",
    "server-unusable",
)


def failure(error: AscendVLError, numbers: dict[str, Any]) -> Finding:
    """The finding when an engine was refused, or failed."""
    fault = True if error.code in FAULTS else None
    return Finding(fault, error.what, numbers | {"code": error.code, "why": error.why.en})


def main() -> int:
    """Answer the request; always exit 0 once a finding is written."""
    from ascend_vl.probes import cache

    request = json.loads(sys.stdin.read())
    note, numbers, say = telling()
    try:
        finding = QUESTIONS[request["question"]](Path(request["model"]), note)
        finding = Finding(finding.fault, finding.reason, numbers | dict(finding.numbers))
    except AscendVLError as error:
        finding = failure(error, numbers)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"[:500]
        finding = Finding(None, Text(text, text), numbers)
    say("finding", cache.to_json(finding))
    return 0


if __name__ == "__main__":
    sys.exit(main())
