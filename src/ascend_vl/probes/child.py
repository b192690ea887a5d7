"""One probe in a process of its own: `python -m ascend_vl.probes.child`, the request on stdin, JSON lines on stdout."""

import json
import os
import re
import sys
from collections.abc import Callable
from typing import Any

from ascend_vl.adaptations.record import Finding
from ascend_vl.language import Text
from ascend_vl.probes import cache, device, shapes
from ascend_vl.probes.field_questions import QUESTIONS
from ascend_vl.probes.record import Note
from ascend_vl.probes.registry import PROBES

MARK = "ascend-vl-probe "


def failure(error: BaseException, numbers: dict[str, Any]) -> Finding:
    """The finding when a probe's question raised: a device error is a fault, anything else no verdict."""
    text = str(error).strip() or type(error).__name__
    code = re.search(r"error code is (\d+)", text)
    shown = text.splitlines()[0][:300]
    known = numbers | {"error": text[:2000]} | ({"code": int(code.group(1))} if code else {})
    fault = True if isinstance(error, RuntimeError) and not isinstance(error, device.Occupied) else None
    return Finding(fault, Text(shown, shown), known)


def telling() -> tuple[Note, dict[str, Any], Callable[[str, Any], None]]:
    """`note(**numbers)`, what it has noted so far, and `say(kind, value)`, which writes a line for the parent."""
    numbers: dict[str, Any] = {}

    def say(kind: str, value: Any) -> None:
        # Frameworks print to stdout; a mark tells our lines from theirs.
        os.write(1, f"\n{MARK}{json.dumps({kind: value}, ensure_ascii=False, default=str)}\n".encode())

    def note(**found: object) -> None:
        numbers.update(found)
        say("note", numbers)

    return note, numbers, say


def main() -> int:
    """Answer the request; always exit 0 once a finding is written."""
    request = json.loads(sys.stdin.read())
    note, numbers, say = telling()
    try:
        device.prepare(request.get("device", 0), request.get("anyway", False))
        finding = (PROBES | QUESTIONS)[request["probe"]].run(shapes.from_json(request["shapes"]), note)
        device.finish()
        finding = Finding(finding.fault, finding.reason, numbers | dict(finding.numbers))
    except Exception as error:
        finding = failure(error, numbers)
    say("finding", cache.to_json(finding))
    # The device may be lost; leaving at once is safer than tearing it down.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
