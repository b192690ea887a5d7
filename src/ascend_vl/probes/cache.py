"""What probes found, kept by everything that could change it."""

import contextlib
import hashlib
import importlib
import inspect
import json
import os
from pathlib import Path
from typing import Any

from ascend_vl import __version__
from ascend_vl.adaptations.record import Facts, Finding
from ascend_vl.language import Text
from ascend_vl.probes.record import Probe
from ascend_vl.probes.shapes import Shapes

FACTS = ("chip", "cann", "driver", "torch_npu", "vllm_ascend", "vllm")
# Environment variables that change what the device or its libraries do.
SETTINGS = ("ASCEND_", "NPU_", "ATB_", "LCCL_", "HCCL_", "PYTORCH_NPU_", "TASK_QUEUE_", "INF_NAN_")
# What this package and vllm-ascend (platform.py, its patches and connectors) set in their own processes. None changes
# what an operator computes, and with them a worker would not find what was probed before its server started.
NO_SETTINGS = (
    "ASCEND_VL",
    "ASCEND_CUSTOM_OPP_PATH",
    "ASCEND_LOCAL_COMM_RES",
    "ASCEND_RT_VISIBLE_DEVICES",
    "ASCEND_TRANSFER_TIMEOUT",
    "HCCL_OP_EXPANSION_MODE",
    "NPU_EMULATOR_SHARED",
    "PYTORCH_NPU_ALLOC_CONF",
)
# Modules that every probe's verdict depends on besides its own.
SHARED = (
    "ascend_vl.probes.references",
    "ascend_vl.probes.judge",
    "ascend_vl.probes.device",
    "ascend_vl.probes.rotary_call",
    "ascend_vl.adaptations.seams.attention_operators",
    "ascend_vl.adaptations.seams.merge",
    "ascend_vl.adaptations.seams.lengths",
)


def folder() -> Path:
    """Where findings are kept: $ASCEND_VL_CACHE, or ascend-vl/ in the user's cache folder; in it `probes/`."""
    own = os.environ.get("ASCEND_VL_CACHE")
    base = Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ascend-vl"
    return base / "probes"


def source_hash(probe: Probe) -> str:
    """Hash of the source that the verdict of `probe` depends on."""
    digest = hashlib.sha256()
    for name in (probe.module, *SHARED):
        digest.update(inspect.getsource(importlib.import_module(name)).encode())
    return digest.hexdigest()[:16]


def settings() -> dict[str, str]:
    """The environment variables that belong to the key."""
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(SETTINGS) and not name.startswith(NO_SETTINGS)
    }


def key(probe: Probe, facts: Facts, shapes: Shapes) -> dict[str, Any]:
    """Everything that could change what `probe` finds."""
    return {
        "probe": probe.id,
        "facts": {name: getattr(facts, name) for name in FACTS},
        "shapes": shapes.to_json(),
        "settings": settings(),
        "source": source_hash(probe),
    }


def _path(probe: Probe, facts: Facts, shapes: Shapes) -> Path:
    text = json.dumps(key(probe, facts, shapes), sort_keys=True)
    return folder() / f"{probe.id}-{hashlib.sha256(text.encode()).hexdigest()[:24]}.json"


def load(probe: Probe, facts: Facts, shapes: Shapes) -> Finding | None:
    """The kept finding, None when there is none, it cannot be read, or another release of this package kept it."""
    return _read(_path(probe, facts, shapes))


def _read(path: Path) -> Finding | None:
    """The finding in a file; a file that another release kept is removed."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["ascend_vl"] != __version__:
            raise KeyError(kept["ascend_vl"])
        return from_json(kept["finding"])
    except OSError:
        return None
    except (ValueError, KeyError, TypeError):
        with contextlib.suppress(OSError):
            path.unlink()
        return None


def store(probe: Probe, facts: Facts, shapes: Shapes, finding: Finding) -> None:
    """Keep a verdict; one without (fault None) is not kept. What other releases kept goes.

    A folder that cannot be written is no error.
    """
    if finding.fault is None:
        return
    path = _path(probe, facts, shapes)
    kept = {"ascend_vl": __version__, "key": key(probe, facts, shapes), "finding": to_json(finding)}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for other in path.parent.glob("*.json"):
            _read(other)
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(kept, ensure_ascii=False, indent=1), encoding="utf-8")
        partial.replace(path)
    except OSError:
        return


def to_json(finding: Finding) -> dict[str, Any]:
    """A finding as plain values."""
    reason = {"en": finding.reason.en, "zh": finding.reason.zh}
    return {"fault": finding.fault, "reason": reason, "numbers": dict(finding.numbers)}


def from_json(value: dict[str, Any]) -> Finding:
    """The inverse of `to_json`. Raises KeyError for anything else."""
    return Finding(value["fault"], Text(value["reason"]["en"], value["reason"]["zh"]), value["numbers"])
