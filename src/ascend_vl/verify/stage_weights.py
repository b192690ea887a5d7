"""Stage B: the real weights. Every tensor accounted for; it answers a text and a picture, twice the same."""

import re
from pathlib import Path
from typing import Any

from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text
from ascend_vl.verify import remote, repeated_request
from ascend_vl.verify.alarms import degenerate
from ascend_vl.verify.capture import status_emulated
from ascend_vl.verify.cases import Case, read_cases
from ascend_vl.verify.stages import Session

HELLO = Case("hello", "Hello", max_tokens=16)


def run(session: Session) -> None:
    """Headers, start, one text and one picture, each asked twice."""
    _tensors(session)
    server = session.engine()
    session.earn("installed", "started")
    session.emulated = session.emulated or status_emulated(server.status or {})
    _loaded(session, server)
    asked = remote.Server(server.url, server.api_key)
    cases = read_cases(session.cases)
    text = next((case for case in cases if not case.images), HELLO)
    picture = next((case for case in cases if case.images), None)
    _answered(session, asked, text, "text answered")
    if picture:
        _answered(session, asked, picture, "image answered")
    else:
        session.check("image answered", None, Text("not run: no case has a picture", "未运行：没有带图片的用例"))
    session.earn("repeated")


def _tensors(session: Session) -> None:
    from ascend_vl.checkpoint import inspect_checkpoint

    checkpoint = inspect_checkpoint(session.model)
    session.facts["checkpoint"] = {
        "family": checkpoint.family,
        "parameters": checkpoint.parameters,
        "bytes": checkpoint.bytes,
        "dtypes": dict(checkpoint.dtypes),
        "has_head": checkpoint.has_head,
    }
    checkpoint.require_servable()
    count = Text(
        f"{len(checkpoint.tensors)} tensors, {checkpoint.bytes} bytes in files; none missing, none unexpected",
        f"共 {len(checkpoint.tensors)} 个张量，文件 {checkpoint.bytes} 字节；无缺失、无多余",
    )
    session.check("every tensor accounted for", True, count)


def _loaded(session: Session, server: Any) -> None:
    workers = (server.status or {}).get("workers", [])
    loaded = [worker.get("bytes") for worker in workers]
    values: dict[str, Any] = {
        **server.stages,
        "worker_bytes": loaded,
        "model_class": [w.get("model_class") for w in workers],
    }
    session.check("loads", True, Text(f"bytes in each worker: {loaded}", f"各 worker 中的字节数：{loaded}"), **values)
    tokens = server.stages.get("kv_tokens")
    session.check(
        "room for the KV cache",
        None if tokens is None else tokens > 0,
        Text(f"{tokens} tokens", f"{tokens} 个词元"),
        kv_tokens=tokens,
    )
    traces = _traces(Path(server.log_path))
    session.check("no traceback in the server's log", not traces, "; ".join(traces[:3]))


def _traces(log: Path) -> list[str]:
    lines = log.read_text(errors="replace").splitlines()
    return [line.strip()[:200] for line in lines if re.search(r"\bTraceback \(most recent call last\)", line)]


def _answered(session: Session, server: remote.Server, case: Case, word: str) -> None:
    """Ask twice. What is said is noted here and judged in stage C; an empty answer is none."""
    session.progress(f"{word}: {case.id}")
    first, _ = server.ask(case, fresh_images=True)
    flags = degenerate(first.text, first.token_ids)
    said = bool(first.token_ids) if first.token_ids is not None else bool(first.text.strip())
    session.check(word, said, repr(first.text[:200]), case=case.id, degenerate=flags)
    session.earn(word)
    plan = session.engine().plan
    try:
        second, _ = server.ask(case)
    except AscendVLError:
        if case.images:
            repeated_request.keep(plan, failed=True)
        raise
    equal = first.text == second.text
    if case.images:
        repeated_request.keep(plan, failed=not equal)
    said_again = (
        Text("equal", "相同") if equal else Text(f"not equal: {second.text[:200]!r}", f"不同：{second.text[:200]!r}")
    )
    session.check(f"{word}, the same request again", None, said_again, equal=equal)
