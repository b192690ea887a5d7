"""Taking out of a text what must not leave a site: keys, tokens, user and host names, addresses, pictures."""

import getpass
import re
import socket
from pathlib import Path

_RULES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), replacement)
    for pattern, replacement in (
        (r"data:[\w.+/-]+;base64,[A-Za-z0-9+/=\s]{16,}", "data:[removed]"),
        (r"(authorization\s*[:=]\s*)(?:bearer\s+|basic\s+)?\S+", r"\1[removed]"),
        (r"(bearer\s+)[\w.~+/=-]{6,}", r"\1[removed]"),
        (r"(--api-key(?:=|\s+))(?:\S+(?:\s+(?!-)\S+)*)", r"\1[removed]"),
        (
            r"(\b[\w-]*(?:api[_-]?key|secret|password|passwd|token(?![a-z_])|credential)[\w-]*\b['\"]?\s*[:=]\s*)"
            r"(?:\"[^\"]*\"|'[^']*'|[^\s,;&}\])]+)",
            r"\1[removed]",
        ),
        (r"\b(?:sk|hf|ms|ghp|gho|glpat)[-_][A-Za-z0-9_-]{8,}", "[removed]"),
        (r"(https?://)[^\s/@:]+:[^\s/@]+@", r"\1[removed]@"),
        (r"\b(?:\d{1,3}\.){3}\d{1,3}\b(?!\.\d)", "[address]"),
        (r"\b(?:[0-9a-f]{1,4}:){4,7}[0-9a-f]{1,4}\b", "[address]"),
        (r"(?:/home/|/Users/|/root\b/?)[^/\s'\":,]*", "~"),
    )
)
KEPT = ("0.0.0.0", "127.0.0.1")


def redact(text: str, names: tuple[str, ...] | None = None) -> str:
    """The text without secrets. `names` are words to hide (default: this user's and this host's name).

    Four-part numbers are taken for addresses except 0.0.0.0 and 127.0.0.1.
    """
    for pattern, replacement in _RULES:
        text = pattern.sub(lambda match, new=replacement: _kept(match, new), text)  # type: ignore[misc]
    for name in own_names() if names is None else names:
        if len(name) > 2:
            text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", "[name]", text)
    return text


def _kept(match: "re.Match[str]", replacement: str) -> str:
    if replacement == "[address]" and match.group(0) in KEPT:
        return match.group(0)
    return match.expand(replacement)


def own_names() -> tuple[str, ...]:
    """This user's and this host's name; words everybody has are not names."""
    found = []
    for look in (getpass.getuser, socket.gethostname, lambda: Path.home().name):
        try:
            found.append(look())
        except (OSError, KeyError, RuntimeError):
            continue
    common = {"root", "localhost", "user", "ubuntu", "admin", "home"}
    return tuple(name for name in dict.fromkeys(found) if name.lower() not in common)
