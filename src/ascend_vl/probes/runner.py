"""Running probes, each alone in a spawned child that is gone before anything else starts."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ascend_vl.adaptations.record import Facts, Finding
from ascend_vl.language import Text
from ascend_vl.probes import cache
from ascend_vl.probes.child import MARK
from ascend_vl.probes.registry import PROBES
from ascend_vl.probes.shapes import Shapes

TIMEOUT = 300.0
COMMAND = (sys.executable, "-m", "ascend_vl.probes.child")


def needed(facts: Facts) -> list[str]:
    """Ids of the probes that decide something on the machine `facts` describes; none on a CPU or an unknown stack."""
    from ascend_vl.adaptations.decide import known_stack
    from ascend_vl.adaptations.registry import RECORDS

    if facts.chip is None or not known_stack(facts):
        return []
    wanted = {record.probe for record in RECORDS if record.probe and record.applies(facts).verdict == "yes"}
    return [name for name in PROBES if name in wanted]


def run(
    facts: Facts,
    shapes: Shapes,
    only: Iterable[str] | None = None,
    *,
    anyway: bool = False,
    fresh: bool = False,
    timeout: float = TIMEOUT,
    told: Callable[[str, Finding], None] | None = None,
) -> dict[str, Finding]:
    """Findings by probe id, from the cache or from a child each; `told` hears of each as it comes.

    `anyway` probes a chip on which somebody else holds memory, `fresh` passes the cache by.
    Raises KeyError for an unknown probe id.
    """
    found: dict[str, Finding] = {}
    for name in needed(facts) if only is None else only:
        probe = PROBES[name]
        finding = None if fresh else cache.load(probe, facts, shapes)
        if finding is None:
            finding = ask(name, shapes, anyway=anyway, timeout=timeout)
            cache.store(probe, facts, shapes, finding)
        found[name] = finding
        if told is not None:
            told(name, finding)
    return found


def ask(name: str, shapes: Shapes, *, device: int = 0, anyway: bool = False, timeout: float = TIMEOUT) -> Finding:
    """Run one probe in a child and wait for its finding; a child that dies at its question is a fault, a hang no
    verdict.
    """
    return converse({"probe": name, "shapes": shapes.to_json(), "device": device, "anyway": anyway}, timeout)


def converse(request: dict[str, Any], timeout: float, command: Sequence[str] = ()) -> Finding:
    """The finding of a child that `command` (by default the one for probes) starts and that reads `request`."""
    out, err, status = _converse(request, timeout, command or COMMAND)
    if status is None:
        return Finding(None, Text(f"no answer within {timeout:.0f} s", f"{timeout:.0f} 秒内没有结果"), _notes(out))
    for line in _lines(out):
        if "finding" in line:
            return cache.from_json(line["finding"])
    return _died(status, _notes(out), err)


def _converse(request: dict[str, Any], timeout: float, command: Sequence[str]) -> tuple[bytes, bytes, int | None]:
    """Output, errors and exit status of a child that got `request`; status None when it was stopped at the time-out."""
    # A session of its own, so that whatever the child started goes with it.
    child = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        out, err = child.communicate(json.dumps(request).encode(), timeout=timeout)
    except subprocess.TimeoutExpired:
        _end(child)
        out, err = child.communicate()
        return out, err, None
    except BaseException:
        _end(child)
        raise
    return out, err, child.returncode


def _end(child: "subprocess.Popen[bytes]") -> None:
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        child.kill()


def _lines(out: bytes) -> list[dict[str, Any]]:
    texts = (line[len(MARK) :] for line in out.decode(errors="replace").splitlines() if line.startswith(MARK))
    return [json.loads(text) for text in texts]


def _notes(out: bytes) -> dict[str, Any]:
    notes = [line["note"] for line in _lines(out) if "note" in line]
    return notes[-1] if notes else {}


def _died(status: int, notes: dict[str, Any], err: bytes) -> Finding:
    tail = err.decode(errors="replace").strip().splitlines()[-1:]
    numbers = notes | {"exit_status": status, "stderr": "".join(tail)[:500]}
    if "question" in notes:
        return Finding(True, Text(f"the process died (status {status})", f"进程退出（状态 {status}）"), numbers)
    return Finding(None, Text(f"the probe did not run (status {status})", f"探测未能运行（状态 {status}）"), numbers)
