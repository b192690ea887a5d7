"""Collecting what somebody who helps needs to see, redacted, in one archive."""

import json
import os
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ascend_vl import __version__
from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text
from ascend_vl.machine.detect import smi
from ascend_vl.machine.redaction import redact
from ascend_vl.rules import table

# Bytes of a log that are taken, from its end.
TAIL = 256 * 1024
NEWEST = 4
PREFIXES = ("ASCEND_", "VLLM_", "HCCL_", "LCCL_", "ATB_", "NPU_", "TORCH_", "PYTORCH_NPU_", "OMP_", "TASK_QUEUE")


def plog_directory() -> Path:
    """Where CANN's host logs are: $ASCEND_PROCESS_LOG_PATH, by default ~/ascend/log."""
    return Path(os.environ.get("ASCEND_PROCESS_LOG_PATH") or Path.home() / "ascend" / "log")


def newest_logs(directory: Path, pattern: str, most: int = NEWEST) -> list[Path]:
    """The newest files below a directory, newest first; nothing when it cannot be read."""
    found = []
    try:
        for path in directory.rglob(pattern):
            if path.is_file():
                found.append((path.stat().st_mtime, path))
    except OSError:
        pass
    return [path for _, path in sorted(found, key=lambda pair: -pair[0])[:most]]


def tail(path: Path) -> str:
    """The end of a log as text, or why it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            size = file.tell()
            file.seek(max(0, size - TAIL))
            return file.read().decode("utf-8", "replace")
    except OSError as error:
        return f"[{error.strerror}]"


def variables() -> str:
    """The environment variables that matter, one a line."""
    listed = {row.name for row in table().environment}
    lines = [
        f"{name}={value}"
        for name, value in sorted(os.environ.items())
        if name in listed or name.startswith(PREFIXES) or name == "ASCEND_VL"
    ]
    return "\n".join(lines) + "\n"


def parts(status: dict[str, Any], logs: list[Path], plan: dict[str, Any] | None) -> Iterator[tuple[str, str]]:
    """(name in the archive, text before redaction). `status` is doctor's JSON, `logs` further files the user named."""
    yield "status.json", _json(status)
    if plan is not None:
        yield "plan.json", _json(plan)
    yield (
        "versions.json",
        _json({"ascend-vl": __version__, "python": sys.version, "packages": status.get("packages", {})}),
    )
    yield "environment.txt", variables()
    for name, arguments in (("info", ["info"]), ("mapping", ["info", "-m"]), ("list", ["info", "-l"])):
        text = smi(*arguments)
        if text is not None:
            yield f"npu-smi/{name}.txt", text
    for number, path in enumerate(newest_logs(plog_directory(), "*.log")):
        yield f"plog/{number}-{path.name}", tail(path)
    for number, path in enumerate(newest_logs(server_logs(), "serve-*.log")):
        yield f"server/{number}-{path.name}", tail(path)
    for number, path in enumerate(logs):
        yield f"logs/{number}-{path.name}", tail(path)


def server_logs() -> Path:
    """Where `ascend-vl serve` keeps its logs."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "ascend-vl" / "logs"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"


def write_archive(
    out: Path, status: dict[str, Any], logs: list[Path] | None = None, plan: dict[str, Any] | None = None
) -> list[str]:
    """Write the redacted archive; the names in it. Raises AscendVLError `file-unwritable`."""
    names = []
    try:
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in parts(status, logs or [], plan):
                inner = redact(name)
                archive.writestr(zipfile.ZipInfo(inner, time.localtime()[:6]), redact(text))
                names.append(inner)
    except OSError as error:
        raise AscendVLError(
            "file-unwritable",
            Text(f"{out} cannot be written.", f"无法写入 {out}。"),
            Text(error.strerror or str(error), error.strerror or str(error)),
            Text("Name a file in a directory you may write to.", "请指定可写目录中的文件。"),
        ) from None
    return names
