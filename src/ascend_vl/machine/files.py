"""Version files and device files of a host with an NPU. `root` lets tests stand in for the file system."""

import os
import re
from pathlib import Path

CANN_FILES = (
    "usr/local/Ascend/ascend-toolkit/latest/{arch}-linux/ascend_toolkit_install.info",
    "usr/local/Ascend/cann/latest/{arch}-linux/ascend_toolkit_install.info",
    "usr/local/Ascend/cann/{arch}-linux/ascend_toolkit_install.info",
    "usr/local/Ascend/ascend-toolkit/latest/version.cfg",
    "usr/local/Ascend/cann/version.cfg",
    "usr/local/Ascend/latest/version.cfg",
)
DRIVER_FILE = "usr/local/Ascend/driver/version.info"
FIRMWARE_FILE = "usr/local/Ascend/firmware/version.info"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")[:65536]
    except OSError:
        return ""


def version_field(text: str) -> str | None:
    """The version in a file of lines "Version=..." or "version=...", or in CANN's version.cfg."""
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals and name.strip().lower() in ("version", "package_version") and value.strip():
            return value.strip().strip('"')
    match = re.search(r"^\s*toolkit_(?:running|installed)_version\s*=\s*\[?([0-9][\w.]*)", text, re.MULTILINE)
    return match.group(1) if match else None


def driver_version(root: Path) -> str | None:
    """The host driver, as the driver's version.info has it."""
    return version_field(_read(root / DRIVER_FILE))


def firmware_version(root: Path) -> str | None:
    """The firmware."""
    return version_field(_read(root / FIRMWARE_FILE))


def cann_version(root: Path, architecture: str) -> str | None:
    """The CANN toolkit, from its install files or from the directory $ASCEND_TOOLKIT_HOME names."""
    home = os.environ.get("ASCEND_TOOLKIT_HOME") or os.environ.get("ASCEND_HOME_PATH")
    candidates = [root / name.format(arch=architecture) for name in CANN_FILES]
    if home:
        candidates.insert(0, Path(home) / f"{architecture}-linux" / "ascend_toolkit_install.info")
    for path in candidates:
        if version := version_field(_read(path)):
            return version
    return None


def device_nodes(root: Path) -> tuple[str, ...]:
    """Names of the device files of Ascend chips, sorted as numbers sort."""
    wanted = re.compile(r"^(davinci\d+|davinci_manager|devmm_svm|hisi_hdc)$")
    try:
        names = [entry.name for entry in os.scandir(root / "dev") if wanted.match(entry.name)]
    except OSError:
        return ()
    return tuple(sorted(names, key=lambda name: (not name[7:].isdigit(), len(name), name)))


def container(root: Path) -> str | None:
    """`docker`, `podman`, `kubernetes`, or None on a host."""
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    if (root / ".dockerenv").exists():
        return "docker"
    if (root / "run/.containerenv").exists():
        return "podman"
    return "docker" if re.search(r"docker|containerd|kubepods", _read(root / "proc/1/cgroup")) else None


def host_memory(root: Path) -> tuple[int, int]:
    """(total, available) bytes a process may use: /proc/meminfo, and the container's limit where that is lower."""
    fields = {}
    for line in _read(root / "proc/meminfo").splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            fields[name] = int(words[0]) * 1024
    total, available = fields.get("MemTotal", 0), fields.get("MemAvailable", fields.get("MemFree", 0))
    limit = _read(root / "sys/fs/cgroup/memory.max").strip()
    if limit.isdigit() and 0 < int(limit) < total:
        used = _read(root / "sys/fs/cgroup/memory.current").strip()
        total = int(limit)
        available = min(available, max(0, total - (int(used) if used.isdigit() else 0)))
    return total, available


def shm_bytes(root: Path) -> int | None:
    """Size of /dev/shm in bytes, None where there is none."""
    try:
        found = os.statvfs(root / "dev/shm")
    except OSError:
        return None
    return found.f_frsize * found.f_blocks
