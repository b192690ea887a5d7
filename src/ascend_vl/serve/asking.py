"""One question to a server or to Transformers."""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ascend_vl import images
from ascend_vl.verify import capture, remote
from ascend_vl.verify.cases import Case


def pictures(sources: Sequence[str], scratch: Path) -> list[Path]:
    """Files or `data:` URLs as normalised PNG files in `scratch`, so that every server sees the same pixels.

    Raises ImageRefused, before any engine is started.
    """
    paths = []
    for number, source in enumerate(sources):
        paths.append(scratch / f"{number}.png")
        images.load_image(source).save(paths[-1], compress_level=1)
    return paths


def case(question: str, paths: Sequence[Path], max_tokens: int) -> Case:
    """The question as a case of `verify`: pictures first, then the text, in one turn."""
    return Case("ask", question, tuple(paths), max_tokens)


def of_server(url: str, question: Case, api_key: str | None) -> dict[str, Any]:
    """Text, model, finish reason, usage and seconds. Raises AscendVLError `server-unreachable`, `server-refused`."""
    server = remote.Server(url, api_key)
    answer, response = server.ask(question)
    return {
        "text": answer.text,
        "model": server.model,
        "finish_reason": answer.finish_reason,
        "usage": response.get("usage"),
        "seconds": answer.timings.get("seconds"),
    }


def of_transformers(model: Path, question: Case) -> dict[str, Any]:
    """The same from Transformers on the CPU, in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="ascend-vl-") as scratch:
        line = {
            "id": question.id,
            "prompt": question.prompt,
            "images": [str(path) for path in question.images],
            "max_tokens": question.max_tokens,
        }
        cases = Path(scratch, "cases.jsonl")
        cases.write_text(json.dumps(line) + "\n", encoding="utf-8")
        run = capture.transformers(model, cases, Path(scratch, "run"), capture.Options(repeats=0))
        answer = run.answers[question.id]
    return {
        "text": answer.text,
        "model": f"transformers:{model}",
        "finish_reason": answer.finish_reason,
        "usage": None,
        "seconds": answer.timings.get("seconds"),
    }
