"""Everything that is known about one id: a rule, a finding, a cause, an error code of a chip, an error code of ours."""

import ast
import functools
import re
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from ascend_vl.language import Text
from ascend_vl.rules.rows import TAGS, Cause, Condition, Pairing, Product, Question, Setting, Symptom, Version
from ascend_vl.rules.table import table


@dataclass(frozen=True)
class Explanation:
    """One id: its kind, title, paragraphs (label and text) and evidence."""

    id: str
    kind: Text
    title: Text
    lines: tuple[tuple[Text, Text], ...]
    evidence: tuple[str, ...]


@dataclass(frozen=True)
class OwnError:
    """One place where this package raises an error of its own; texts as written, with {...} where values go in."""

    code: str
    what: Text
    why: Text
    do: Text
    exit_code: int
    where: str = field(compare=False)


# What stands where a text has values, or is made elsewhere.
UNWRITTEN = "{...}"
CODE = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")

KINDS: dict[str, Text] = {
    "Chip": Text("chip", "芯片"),
    "Product": Text("product", "产品"),
    "Version": Text("release", "版本"),
    "Pairing": Text("driver and CANN", "驱动与 CANN"),
    "Setting": Text("number of the planner", "规划参数"),
    "Flag": Text("flag", "参数"),
    "Condition": Text("finding", "检查项"),
    "Variable": Text("environment variable", "环境变量"),
    "Image": Text("image", "镜像"),
    "Mount": Text("device or mount", "设备或挂载"),
    "Symptom": Text("error", "错误"),
    "KnownModel": Text("model", "模型"),
    "Question": Text("open question", "未决问题"),
}


def explain(wanted: str) -> Explanation | None:
    """What is known about an id, an error code (507018), a release (0.18.0) or an adaptation; None for nothing."""
    name = wanted.strip()
    for row in table().rows():
        aliases = (row.id, getattr(row, "release", None), getattr(row, "name", None), getattr(row, "code", None))
        if name and name in aliases:
            return _row(row)
    causes = [_cause(cause, symptom) for symptom in table().symptoms for cause in symptom.causes if cause.id == name]
    own = _own(name)
    if causes and own is not None:
        both = (*own.lines, (Text("also a cause of", "也是其原因"), causes[0].title), *causes[0].lines)
        return Explanation(own.id, own.kind, own.title, both, causes[0].evidence)
    return next(iter(causes), None) or _adaptation(name) or own


def _row(row: Any) -> Explanation:
    lines = [(Text("what", "说明"), row.text)]
    if isinstance(row, Version):
        lines += [(Text("on 310P", "310P 上"), row.why_310p), (Text("on A2 and A3", "A2、A3 上"), row.why_a2)]
        pins = f"vLLM {row.vllm}; torch {row.torch}; torch_npu {row.torch_npu}; transformers {row.transformers}"
        lines.append((Text("built of", "构成"), Text(pins, pins)))
    elif isinstance(row, Condition):
        lines.append((Text("do", "处理"), row.fix))
    elif isinstance(row, Symptom):
        for cause in row.causes:
            lines.append(
                (Text("cause", "原因"), Text(f"{cause.text.en} {cause.do.en}", f"{cause.text.zh}{cause.do.zh}"))
            )
    elif isinstance(row, Setting):
        value = f"{row.value:g} {row.unit}"
        lines.append((Text("value", "取值"), Text(value, value)))
    elif isinstance(row, Product):
        value = f"{row.chips_per_card} x {row.memory_gib:g} GiB"
        lines.append((Text("a card", "每卡"), Text(value, value)))
    elif isinstance(row, Pairing):
        value = f"driver {row.driver or '*'}, CANN {row.cann or '*'}: {row.verdict}"
        lines.append((Text("pair", "组合"), Text(value, value)))
    elif isinstance(row, Question):
        asked = f"ascend-vl field: {row.probe}"
        lines.append((Text("asked by", "提问"), Text(asked, asked)))
        lines += [(Text("if it fails", "若失败"), row.fault), (Text("if it is fine", "若正常"), row.fine)]
    known = TAGS[row.tag]
    lines.append((Text("known how", "依据"), Text(f"{known.en}, {row.date}", f"{known.zh}，{row.date}")))
    return Explanation(row.id, KINDS[type(row).__name__], row.title, tuple(lines), row.evidence)


def _cause(cause: Cause, symptom: Symptom) -> Explanation:
    lines = ((Text("what", "说明"), cause.text), (Text("do", "处理"), cause.do))
    return Explanation(cause.id, Text("cause", "原因"), symptom.title, lines, cause.evidence)


def _adaptation(name: str) -> Explanation | None:
    from ascend_vl.adaptations import RECORDS

    record = next((record for record in RECORDS if record.id == name), None)
    if record is None:
        return None
    lines = (
        (Text("symptom", "现象"), record.symptom),
        (Text("cause", "原因"), record.cause),
        (Text("acts", "作用于"), Text(f"{record.phase}: {record.seam}", f"{record.phase}：{record.seam}")),
        (Text("cost", "代价"), record.cost),
        (Text("retires", "停用条件"), record.retire),
    )
    return Explanation(record.id, Text("adaptation", "适配"), record.title, lines, record.evidence)


def _own(name: str) -> Explanation | None:
    found = [error for error in own_errors() if error.code == name]
    if not found:
        return None
    lines: list[tuple[Text, Text]] = []
    for error in found:
        labelled = (
            (Text("what", "说明"), error.what),
            (Text("why", "原因"), error.why),
            (Text("do", "处理"), error.do),
        )
        lines += [(label, text) for label, text in labelled if text.en != UNWRITTEN]
    title = Text(
        f"an error of ascend-vl, exit code {found[0].exit_code}", f"ascend-vl 的错误，退出码 {found[0].exit_code}"
    )
    return Explanation(name, Text("error of ascend-vl", "ascend-vl 错误"), title, tuple(lines), ())


@functools.cache
def own_errors() -> tuple[OwnError, ...]:
    """Every AscendVLError this package can raise, read from its source, by code."""
    root = Path(str(resources.files("ascend_vl")))
    found: list[OwnError] = []
    for path in sorted(root.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if "AscendVLError" in source or "Refusal" in source:
            found += _errors_in(source, path.relative_to(root).as_posix())
    return tuple(sorted(found, key=lambda error: (error.code, error.where)))


def _errors_in(source: str, where: str) -> list[OwnError]:
    """Calls that make an error: a code, then what, why (and what to do) as texts in both languages."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or len(node.args) < 3 or not isinstance(node.args[0], ast.Constant):
            continue
        called = ast.unparse(node.func).rpartition(".")[2]
        known = called in ("AscendVLError", "Refusal", "__init__")
        texts = [_text(argument) for argument in node.args[1:4]]
        written = [text for text in texts[:2] if text.en != UNWRITTEN]
        if not CODE.fullmatch(str(node.args[0].value)) or (not known and len(written) < 2):
            continue
        given = next((word.value for word in node.keywords if word.arg == "exit_code"), None)
        exit_code = given.value if isinstance(given, ast.Constant) and isinstance(given.value, int) else 2
        what, why, do = [*texts, Text(UNWRITTEN, UNWRITTEN)][:3]
        found.append(OwnError(str(node.args[0].value), what, why, do, exit_code, where))
    return found


def _text(node: ast.expr) -> Text:
    """The two languages of `Text(en, zh)` as written; {…} for one that is made elsewhere."""
    if isinstance(node, ast.Call) and len(node.args) == 2 and ast.unparse(node.func) == "Text":
        return Text(_string(node.args[0]), _string(node.args[1]))
    return Text(UNWRITTEN, UNWRITTEN)


def _string(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else UNWRITTEN for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _string(node.left) + _string(node.right)
    return UNWRITTEN
