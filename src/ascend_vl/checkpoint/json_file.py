"""JSON files as people leave them (byte-order mark, trailing comma, a key twice): read as meant, and said so."""

import json
import re
from dataclasses import dataclass
from typing import Any

# config.json and its neighbours are small; an index of the largest model is a few megabytes.
LARGEST = 64 * 2**20
# A string, or a comma before a closing bracket; strings are matched first so that commas inside them stay.
_TRAILING_COMMA = re.compile(r'("(?:[^"\\]|\\.)*")|,(\s*[}\]])', re.DOTALL)


@dataclass(frozen=True)
class JsonFile:
    """A parsed file. `value` is None when `error` says (English, Chinese) why nothing could be read."""

    value: Any = None
    error: tuple[str, str] | None = None
    has_bom: bool = False
    trailing_comma: bool = False
    duplicate_keys: tuple[str, ...] = ()


def parse(raw: bytes) -> JsonFile:
    """Parse `raw` leniently. Never raises for what is in it."""
    has_bom = raw.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff"))
    encoding = "utf-16" if raw.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        return JsonFile(error=(f"not UTF-8 at byte {error.start}", f"第 {error.start} 字节不是 UTF-8"), has_bom=has_bom)
    try:
        value, repeated = strict_json(text)
        return JsonFile(value, None, has_bom, False, tuple(repeated))
    except RecursionError:
        return JsonFile(error=("nested too deeply", "嵌套过深"), has_bom=has_bom)
    except ValueError as error:
        at = error
    mended = _TRAILING_COMMA.sub(lambda match: match.group(1) or match.group(2), text)
    try:
        value, repeated = strict_json(mended)
        return JsonFile(value, None, has_bom, True, tuple(repeated))
    except (ValueError, RecursionError):
        pass
    line = getattr(at, "lineno", 0)
    return JsonFile(error=(f"not JSON, line {line}: {at}", f"不是有效 JSON，第 {line} 行：{at}"), has_bom=has_bom)


def strict_json(text: str) -> tuple[Any, list[str]]:
    """(value, keys that stand twice in one object; the last counts). Raises ValueError, RecursionError.

    NaN and Infinity are no JSON and refused; half a surrogate pair cannot be printed and is replaced.
    """
    repeated: list[str] = []

    def keep(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                repeated.append(key)
            found[key] = value
        return found

    value = json.loads(text, object_pairs_hook=keep, parse_constant=_no_number)
    if "\\ud" in text.lower():
        value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
        repeated = [key.encode("utf-8", "replace").decode() for key in repeated]
    return value, repeated


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
