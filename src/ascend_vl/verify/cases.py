"""The questions of a verification: one JSON object a line (`id, images, prompt, max_tokens, key_fields`)."""

import dataclasses
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ascend_vl import strict_json
from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text
from ascend_vl.verify import fields

DEFAULT_MAX_TOKENS = 128


@dataclass(frozen=True)
class Case:
    """One question: pictures in the order given, then the prompt, in one user turn.

    `key_fields` declares what must be read off the answer; see `ascend_vl.verify.fields.declared`.
    """

    id: str
    prompt: str
    images: tuple[Path, ...] = ()
    max_tokens: int = DEFAULT_MAX_TOKENS
    key_fields: Any = dataclasses.field(default=None, hash=False)

    def to_json(self) -> dict[str, Any]:
        """The case as it is recorded in a RUN, with the hash of each picture's file."""
        return {
            "id": self.id,
            "images": [{"file": path.name, "sha256": file_sha256(path)} for path in self.images],
            "prompt": self.prompt,
            "max_tokens": self.max_tokens,
            "key_fields": self.key_fields,
        }


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as source:
        while block := source.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) for every line of a JSONL file that is not blank.

    Raises AscendVLError `file-unreadable` or `jsonl-invalid`.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from None
    # Not splitlines(): an answer may hold U+2028 and friends unescaped.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            value = strict_json.loads(line)
        except ValueError as error:
            raise _bad_line(path, number, str(error), f"不是可用的 JSON（{error}）") from None
        if not isinstance(value, dict):
            raise _bad_line(path, number, "not a JSON object", "不是 JSON 对象")
        yield number, value


def read_cases(path: Path) -> list[Case]:
    """The cases of a JSONL file; relative picture paths start at the file's folder.

    Raises AscendVLError `file-unreadable`, `jsonl-invalid`, `image-missing`.
    """
    cases: dict[str, Case] = {}
    for number, value in json_lines(path):
        case = _case(path, number, value)
        if case.id in cases:
            raise _bad_line(path, number, f"the id {case.id!r} occurs twice", f"id {case.id!r} 重复")
        cases[case.id] = case
    if not cases:
        raise _bad_line(path, 1, "no case in the file", "文件中没有任何用例")
    return list(cases.values())


def _case(path: Path, number: int, value: dict[str, Any]) -> Case:
    identifier, prompt, images = value.get("id"), value.get("prompt"), value.get("images", [])
    max_tokens = value.get("max_tokens", DEFAULT_MAX_TOKENS)
    if not isinstance(identifier, str) or not identifier:
        raise _bad_line(path, number, "`id` must be a non-empty string", "`id` 必须是非空字符串")
    if not isinstance(prompt, str):
        raise _bad_line(path, number, "`prompt` must be a string", "`prompt` 必须是字符串")
    if not isinstance(images, list) or not all(isinstance(image, str) for image in images):
        raise _bad_line(path, number, "`images` must be a list of file names", "`images` 必须是文件名列表")
    if isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < 1:
        raise _bad_line(path, number, "`max_tokens` must be a positive integer", "`max_tokens` 必须是正整数")
    try:
        fields.declared(value.get("key_fields"))
    except ValueError as error:
        raise _bad_line(path, number, f"`key_fields`: {error}", f"`key_fields` 无效：{error}") from None
    files = tuple(path.parent / image for image in images)
    for file in files:
        if not _is_file(file):
            raise AscendVLError(
                "image-missing",
                Text(f"Case {identifier!r} names a picture that is not there.", f"用例 {identifier!r} 的图片不存在。"),
                Text(f"{str(file)[:200]} is not a file.", f"{str(file)[:200]} 不是文件。"),
                Text(
                    "Correct the path; it is relative to the cases file (data: URLs are not taken here).",
                    "请改正路径（相对于用例文件所在目录；此处不接受 data: URL）。",
                ),
            )
    return Case(identifier, prompt, files, max_tokens, value.get("key_fields"))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        # A name longer than the file system takes.
        return False


def _bad_line(path: Path, number: int, why_en: str, why_zh: str) -> AscendVLError:
    return AscendVLError(
        "jsonl-invalid",
        Text(f"{path} cannot be used.", f"{path} 无法使用。"),
        Text(f"Line {number}: {why_en}.", f"第 {number} 行：{why_zh}。"),
        Text("One JSON object a line; see docs/en/verify.md.", "每行一个 JSON 对象；见 docs/zh/verify.md。"),
    )


def unreadable(path: Path, error: Exception) -> AscendVLError:
    """The error for a file or directory that cannot be read."""
    return AscendVLError(
        "file-unreadable",
        Text(f"{path} cannot be read.", f"无法读取 {path}。"),
        Text(f"{type(error).__name__}: {error}", f"{type(error).__name__}: {error}"),
        Text("Check the path and its permissions.", "请检查路径与权限。"),
    )
