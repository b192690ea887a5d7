"""A systemd unit as a script: its variables as exports, what it starts as commands, line for line."""

import re

_STARTS = re.compile(r"^Exec(?:Start|StartPre|StartPost)=[-@+!:]*")


def as_script(text: str) -> str:
    """The text itself unless it is a unit; every line keeps its number."""
    if not re.search(r"(?m)^\[Service\]\s*$", text):
        return text
    lines, joined = [], False
    for line in text.split("\n"):
        if joined or _STARTS.match(line):
            joined = line.rstrip().endswith("\\")
            lines.append(_STARTS.sub("", line).replace("%%", "%").replace("$$", "$"))
        elif line.startswith("Environment="):
            lines.append("export " + line.removeprefix("Environment=").replace("%%", "%"))
        else:
            # Not a command, and not prose to be judged either.
            lines.append(f"# {line}" if line.strip() else "")
    return "\n".join(lines)
