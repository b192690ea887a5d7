"""Key fields: named values that a case declares and an answer states, compared by type.

A case declares them as a list of names; a list of `{"name", "value"[, "type", "pattern"]}`; or an object of
`{name: type}`, `{name: {"type": T, "pattern": REGEX}}` or `{name: value}`. The value is what the picture shows. Types:
number, date, boolean, text, json. Values are looked for in the answer's JSON (also inside a code fence), then by the
pattern, then as `name: value` lines; a declared value is also found where the text states it.
"""

import json
import re
import unicodedata
from dataclasses import dataclass
from typing import Any

from ascend_vl.verify.numbers import quantities

TYPES = ("number", "date", "boolean", "text", "json")
_TRUE = {"yes", "true", "是", "是的", "有", "对"}
_FALSE = {"no", "false", "否", "不是", "没有", "不", "错"}
_ABSENT = object()


@dataclass(frozen=True)
class Declared:
    """One declared field: its name, and at most one way of reading it that is not the default."""

    name: str
    type: str | None = None
    pattern: str | None = None
    value: Any = _ABSENT


def declared(key_fields: Any) -> list[Declared]:
    """What a case's `key_fields` declares; empty when it declares nothing.

    Raises ValueError when it is neither a list of names nor an object, or a pattern is no regular expression.
    """
    if not key_fields:
        return []
    if isinstance(key_fields, list) and all(isinstance(name, str) for name in key_fields):
        return [Declared(name) for name in key_fields]
    if isinstance(key_fields, list) and all(isinstance(rule, dict) and "name" in rule for rule in key_fields):
        return [_declared(str(rule["name"]), {k: v for k, v in rule.items() if k != "name"}) for rule in key_fields]
    if isinstance(key_fields, dict):
        return [_declared(name, rule) for name, rule in key_fields.items()]
    raise ValueError("key_fields must be a list of names or an object")


def _declared(name: str, rule: Any) -> Declared:
    if isinstance(rule, dict) and rule.keys() <= {"type", "pattern", "value"}:
        if rule.get("type") not in (None, *TYPES):
            raise ValueError(f"key field {name!r}: type must be one of {', '.join(TYPES)}")
        return Declared(name, rule.get("type"), _pattern(name, rule.get("pattern")), rule.get("value", _ABSENT))
    if isinstance(rule, str) and rule in TYPES:
        return Declared(name, rule)
    return Declared(name, value=rule)


def _pattern(name: str, pattern: Any) -> str | None:
    if pattern is None:
        return None
    try:
        re.compile(pattern)
    except (re.error, TypeError) as error:
        raise ValueError(f"key field {name!r}: the pattern is no regular expression: {error}") from None
    return str(pattern)


def read_fields(text: str, wanted: list[Declared]) -> dict[str, Any]:
    """The declared fields that `text` states, name to value as written."""
    document = answer_json(text)
    found = {}
    for field in wanted:
        value = _read(text, document, field)
        if value is not _ABSENT:
            found[field.name] = value
    return found


def _read(text: str, document: Any, field: Declared) -> Any:
    if document is not _ABSENT:
        value = _lookup(document, field.name)
        if value is not _ABSENT:
            return value
    if field.pattern:
        match = re.search(field.pattern, text, re.MULTILINE)
        return _ABSENT if not match else match[1] if match.groups() else match[0]
    line = re.search(rf"(?im)^\W*{re.escape(field.name)}\W*[:：=]\s*(.+?)\s*$", text)
    if line:
        return line[1].strip("*`\"' ")
    if field.value is not _ABSENT and not isinstance(field.value, dict | list) and _states(text, field.value):
        return field.value
    return _ABSENT


def answer_json(text: str) -> Any:
    """The JSON object or array in an answer (whole, fenced or embedded), or a marker when there is none."""
    decoder = json.JSONDecoder()
    for match in re.finditer(r"[\[{]", text):
        try:
            value, _ = decoder.raw_decode(text, match.start())
        except json.JSONDecodeError:
            continue
        return value
    return _ABSENT


def _lookup(document: Any, name: str) -> Any:
    """`$` is the whole document, `a.b` a path; on a list of objects a name gives the list of its values."""
    if name == "$":
        return document
    if isinstance(document, dict) and name in document:
        return document[name]
    if isinstance(document, list) and document and all(isinstance(item, dict) for item in document):
        values = [_lookup(item, name) for item in document]
        return _ABSENT if _ABSENT in values else values
    head, _, rest = name.partition(".")
    if isinstance(document, dict) and rest and head in document:
        return _lookup(document[head], rest)
    return _ABSENT


def _states(text: str, value: Any) -> bool:
    if isinstance(value, bool):
        words = set(re.findall(r"\w+", text.lower()))
        return bool(words & (_TRUE if value else _FALSE))
    wanted = quantities(str(value))
    if wanted and len(str(value).split()) == 1 and not re.search(r"[^\W\d_]", str(value)):
        return any((q.kind, q.value) == (wanted[0].kind, wanted[0].value) for q in quantities(text))
    needle, haystack = _text(str(value)), _text(text)
    boundary = r"\b" if needle.isascii() else ""
    return bool(re.search(boundary + re.escape(needle) + boundary, haystack, re.IGNORECASE))


def typed(value: Any, kind: str | None = None) -> tuple[str, str]:
    """(type, value written one way). Without a declared type the JSON type is part of the value: 5 is not "5"."""
    if kind in ("number", "date") and isinstance(value, str):
        found = quantities(value)
        return (kind, " ".join(map(str, found))) if found else ("text", _text(value))
    if kind == "boolean" and isinstance(value, str):
        word = _text(value).lower().strip(".。!！")
        return ("boolean", "true") if word in _TRUE else ("boolean", "false") if word in _FALSE else ("text", word)
    if kind == "text" and not isinstance(value, str):
        return "text", _text(json.dumps(value, ensure_ascii=False, sort_keys=True))
    if isinstance(value, bool):
        return "boolean", str(value).lower()
    if isinstance(value, int | float):
        found = quantities(repr(value))
        return "number", str(found[0]) if found else repr(value)
    if value is None:
        return "null", "null"
    if isinstance(value, str):
        return "text", _text(value)
    return "json", json.dumps(_canonical(value), ensure_ascii=False, sort_keys=True)


def _canonical(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _canonical(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_canonical(item) for item in value]
    return list(typed(value))


def _text(value: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", value).split())


def pairs(values: dict[str, Any], wanted: list[Declared]) -> frozenset[tuple[str, tuple[str, str]]]:
    """The (name, typed value) pairs of an answer."""
    kinds = {field.name: field.type for field in wanted}
    return frozenset((name, typed(value, kinds.get(name))) for name, value in values.items())
