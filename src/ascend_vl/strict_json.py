"""JSON from outside, read so that it can be kept: no NaN, no endless nesting, no text that UTF-8 cannot hold."""

import json
from typing import Any, NoReturn


def loads(text: str) -> Any:
    """The value of a JSON document. Raises ValueError, in words, for what is none or cannot be written back.

    RFC 8259 has no NaN and no Infinity; Python's reader takes them unless told otherwise.
    """
    try:
        value = json.loads(text, parse_constant=_no_constant)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg}, line {error.lineno}") from None
    except RecursionError:
        raise ValueError("not JSON that can be read: nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("not JSON that can be kept: half a surrogate pair in a text") from None
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"not JSON: {name}")
