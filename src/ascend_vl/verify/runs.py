"""A RUN: what one engine answered to the cases, as a directory of plain JSON and JSONL with a hash of every file.

RUN/run.json        what answered: target, versions, dtype, sampling, statuses, what could not be seen and why
RUN/cases.jsonl     the questions, with the hash of each picture's file
RUN/answers.jsonl   one `Answer` a line
RUN/images/         each normalised picture, PNG
RUN/tensors/        tower outputs, NPZ, when asked for
RUN/manifest.json   {"schema": 1, "sha256": {file: hex}}
"""

import functools
import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from typing_extensions import Required, TypedDict

from ascend_vl import strict_json
from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text
from ascend_vl.verify.cases import file_sha256, json_lines, unreadable

SCHEMA = 1
MANIFEST = "manifest.json"


class Repeat(TypedDict, total=False):
    """A further answer to the same request; `concurrent` when others were asked at the same time."""

    text: Required[str]
    token_ids: list[int] | None
    concurrent: bool


@dataclass
class Answer:
    """What came back for one case, and the hashes of what led to it.

    `logprobs[i]` are the most likely tokens at position i as (token id, log probability in nats), best first.
    `stages` holds what could be seen on the way; `missing` says for everything absent why it is.
    `repeats` are further answers to the same request.
    """

    id: str
    text: str
    token_ids: list[int] | None = None
    fields: dict[str, Any] | None = None
    finish_reason: str | None = None
    logprobs: list[list[tuple[int, float]]] | None = None
    stages: dict[str, Any] = field(default_factory=dict)
    repeats: list[Repeat] = field(default_factory=list)
    timings: dict[str, float] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


@dataclass
class Run:
    """A recorded RUN; `bare` when it is only a JSONL file of answers from another tool."""

    path: Path
    info: dict[str, Any]
    cases: dict[str, dict[str, Any]]
    answers: dict[str, Answer]
    bare: bool = False

    @property
    def name(self) -> str:
        """What to call this side in a report."""
        return str(self.info.get("name") or self.path.name)

    @property
    def emulated(self) -> bool:
        """Whether any part of this run was the NPU emulator."""
        return bool(self.info.get("emulated"))


def write_run(path: Path, info: dict[str, Any], cases: list[dict[str, Any]], answers: list[Answer]) -> None:
    """Write a RUN's files, then its manifest over everything in the directory (pictures and tensors included)."""
    path.mkdir(parents=True, exist_ok=True)
    write_json(path / "run.json", {"schema": SCHEMA, **info})
    write_lines(path / "cases.jsonl", cases)
    write_lines(path / "answers.jsonl", [asdict(answer) for answer in answers])
    write_manifest(path)


def write_manifest(path: Path) -> None:
    """Record the hash of every file below `path` except manifests themselves."""
    files = sorted(p for p in path.rglob("*") if p.is_file() and p.name != MANIFEST)
    hashes = {p.relative_to(path).as_posix(): file_sha256(p) for p in files}
    write_json(path / MANIFEST, {"schema": SCHEMA, "sha256": hashes})


def changed_files(path: Path) -> list[str]:
    """Files under `path` that differ from its manifest, are gone, or were added; empty when all is as recorded.

    Raises AscendVLError `file-unreadable` when there is no manifest.
    """
    recorded = read_json(path / MANIFEST).get("sha256", {})
    present = {p.relative_to(path).as_posix(): p for p in path.rglob("*") if p.is_file() and p.name != MANIFEST}
    differing = [name for name, digest in recorded.items() if name in present and file_sha256(present[name]) != digest]
    return sorted([*differing, *(recorded.keys() - present.keys()), *(present.keys() - recorded.keys())])


def read_run(path: Path) -> Run:
    """A RUN directory, or a bare JSONL file with `id, text[, token_ids, fields]`.

    Raises AscendVLError `file-unreadable`, `jsonl-invalid`, `run-invalid`.
    """
    if path.is_dir():
        info = read_json(path / "run.json")
        if info.get("schema") != SCHEMA:
            raise invalid_run(path, f"run.json has schema {info.get('schema')!r}, not {SCHEMA}")
        cases = {str(value.get("id")): value for _, value in json_lines(path / "cases.jsonl")}
        return Run(path, info, cases, _answers(path / "answers.jsonl"))
    return Run(path, {"name": path.name}, {}, _answers(path), bare=True)


def _answers(path: Path) -> dict[str, Answer]:
    answers: dict[str, Answer] = {}
    for number, value in json_lines(path):
        answer = _answer(path, number, value)
        if answer.id in answers:
            raise invalid_run(path, f"line {number}: the id {answer.id!r} occurs twice")
        answers[answer.id] = answer
    if not answers:
        raise invalid_run(path, "it holds no answer")
    return answers


def _answer(path: Path, number: int, value: dict[str, Any]) -> Answer:
    known = {f.name for f in fields(Answer)}
    identifier, text, token_ids = value.get("id"), value.get("text"), value.get("token_ids")
    if isinstance(identifier, int) and not isinstance(identifier, bool):
        identifier = str(identifier)
    if not isinstance(identifier, str):
        raise invalid_run(path, f"line {number}: `id` must be a string")
    if not isinstance(text, str):
        raise invalid_run(path, f"line {number}: `text` must be a string")
    if token_ids is not None and not _is_token_ids(token_ids):
        raise invalid_run(path, f"line {number}: `token_ids` must be a list of non-negative integers")
    if value.get("fields") is not None and not isinstance(value["fields"], dict):
        raise invalid_run(path, f"line {number}: `fields` must be an object")
    from pydantic import ValidationError

    stated = {**{k: v for k, v in value.items() if k in known}, "id": identifier}
    try:
        return _reader().validate_python(stated)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise invalid_run(path, f"line {number}: `{where}`: {first['msg']}") from None


@functools.cache
def _reader() -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(Answer)


def _is_token_ids(value: Any) -> bool:
    return isinstance(value, list) and all(type(token) is int and token >= 0 for token in value)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file. Raises AscendVLError `file-unreadable` or `run-invalid`."""
    try:
        value = strict_json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from None
    except ValueError as error:
        raise invalid_run(path, str(error)) from None
    if not isinstance(value, dict):
        raise invalid_run(path, "not a JSON object")
    return value


def write_json(path: Path, value: Any) -> None:
    """One indented JSON document, UTF-8, NaN refused."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def write_lines(path: Path, values: list[dict[str, Any]]) -> None:
    """One JSON object a line, UTF-8, NaN refused."""
    lines = [json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n" for value in values]
    path.write_text("".join(lines), encoding="utf-8")


def invalid_run(path: Path, why: str) -> AscendVLError:
    """The error for recorded files that cannot be a RUN."""
    return AscendVLError(
        "run-invalid",
        Text(f"{path} is not a recorded run.", f"{path} 不是有效的记录。"),
        Text(f"{why}.", f"{why}。"),
        Text(
            "Give a directory that capture wrote, or a JSONL file of {id, text[, token_ids, fields]}.",
            "请给出 capture 写出的目录，或由 {id, text[, token_ids, fields]} 组成的 JSONL 文件。",
        ),
    )


def digest(path: Path) -> str:
    """One hash for a whole run: of a file, or of a directory's manifest."""
    return file_sha256(path / MANIFEST if path.is_dir() else path)
