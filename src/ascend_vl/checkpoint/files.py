"""Where a checkpoint's files are and how parts of them are read: a local directory or a hub cache (see remote.py)."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text


class Files(Protocol):
    """The top-level files of one checkpoint. `sizes` is file name to bytes; `broken_links` lead nowhere."""

    @property
    def where(self) -> str: ...

    @property
    def sizes(self) -> Mapping[str, int]: ...

    @property
    def broken_links(self) -> tuple[str, ...]: ...

    def read(self, name: str, start: int, length: int) -> bytes:
        """At most `length` bytes from `start`. Raises OSError when the file cannot be read."""
        ...


@dataclass(frozen=True)
class LocalFiles:
    """A directory on this machine, opened for reading only."""

    where: str
    sizes: Mapping[str, int]
    broken_links: tuple[str, ...] = ()
    root: Path = field(default_factory=Path)

    def read(self, name: str, start: int, length: int) -> bytes:
        """At most `length` bytes from `start`. Raises OSError."""
        with open(self.root / name, "rb") as file:
            file.seek(start)
            return file.read(length)


def local_files(path: Path) -> LocalFiles:
    """The files of a directory, of a hub cache entry (its snapshot), or one safetensors file taken by itself.

    Raises AscendVLError (`model-unreadable`, `model-ambiguous`).
    """
    try:
        if path.is_file():
            return LocalFiles(str(path), {path.name: path.stat().st_size}, root=path.parent)
        root = snapshot(path)
        sizes, broken = {}, []
        for entry in sorted(os.scandir(root), key=lambda item: item.name):
            if entry.is_file():
                sizes[entry.name] = entry.stat().st_size
            elif entry.is_symlink() and not os.path.exists(entry.path):
                broken.append(entry.name)
    except OSError as error:
        raise _unreadable(path, error) from None
    return LocalFiles(str(root), sizes, tuple(broken), root)


def snapshot(path: Path) -> Path:
    """`path` itself, or the snapshot that a hub cache entry (`models--owner--name`) points at.

    Raises AscendVLError (`model-ambiguous`) when the cache holds several and `refs/main` names none of them.
    """
    snapshots = path / "snapshots"
    if not snapshots.is_dir():
        return path
    found = sorted(child.name for child in snapshots.iterdir() if child.is_dir())
    main = path / "refs" / "main"
    if main.is_file():
        wanted = main.read_text(encoding="utf-8", errors="replace").strip()
        if wanted in found:
            return snapshots / wanted
    if len(found) == 1:
        return snapshots / found[0]
    raise AscendVLError(
        "model-ambiguous",
        Text(f"{path} holds {len(found)} snapshots.", f"{path} 中有 {len(found)} 个快照。"),
        Text("refs/main names none of them.", "refs/main 未指向其中任何一个。"),
        Text(
            f"Name one: {snapshots}/<one of {', '.join(found) or '-'}>",
            f"请指定其一：{snapshots}/<{'、'.join(found) or '-'}>",
        ),
    )


def _unreadable(path: Path, error: OSError) -> AscendVLError:
    return AscendVLError(
        "model-unreadable",
        Text(f"{path} cannot be read.", f"无法读取 {path}。"),
        Text(
            f"{type(error).__name__}: {error.strerror or error}.",
            f"{type(error).__name__}：{error.strerror or error}。",
        ),
        Text("Check the path and its permissions.", "请检查路径与权限。"),
    )
