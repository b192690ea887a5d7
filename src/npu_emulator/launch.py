"""Running a command on an emulated machine: environment variables that its child processes inherit, and nothing else."""

import hashlib
import os
import tempfile
from pathlib import Path

from npu_emulator.install import SHARED, SITE_PACKAGES
from npu_emulator.machine import VARIABLE, Machine
from npu_emulator.stacks import cache

PACKAGE = Path(__file__).resolve().parent


def import_folder(machine: Machine) -> Path:
    """A folder for PYTHONPATH with the stand-in packages, this package and torch_npu's metadata, and nothing else.

    The metadata has torch_npu's own entry point in group `torch.backends`, by which `import torch` loads it.
    """
    key = hashlib.sha256(str(PACKAGE).encode()).hexdigest()[:8]
    folder = cache() / f"path-{machine.torch_npu}-{key}"
    info = folder / f"torch_npu-{machine.torch_npu}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    texts = {
        "METADATA": f"Metadata-Version: 2.1\nName: torch-npu\nVersion: {machine.torch_npu}\nSummary: emulated\n",
        "entry_points.txt": "[torch.backends]\ntorch_npu = torch_npu:_autoload\n",
        "INSTALLER": "npu_emulator\n",
        "RECORD": "",
    }
    for name, text in texts.items():
        if not (info / name).exists():
            (info / name).write_text(text)
    for target in (PACKAGE, *sorted(p for p in SITE_PACKAGES.iterdir() if p.is_dir() and p.name != "__pycache__")):
        link = folder / target.name
        if not link.is_symlink():
            link.symlink_to(target)
    return folder


def environment(machine: Machine, base: dict[str, str] | None = None) -> dict[str, str]:
    """Environment of a process that runs on `machine`; `base` (this process's by default) is extended, not replaced."""
    variables = dict(os.environ if base is None else base)
    path = [str(import_folder(machine))]
    path += [part for part in variables.get("PYTHONPATH", "").split(os.pathsep) if part and not part.startswith(str(cache()))]
    variables[VARIABLE] = machine.to_json()
    variables["PYTHONPATH"] = os.pathsep.join(path)
    variables.setdefault(SHARED, tempfile.mkstemp(prefix="npu-emulator-")[1])
    return variables
