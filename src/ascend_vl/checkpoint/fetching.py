"""Downloading a model: only the files that serving needs, resuming, with every checksum the hub gives.

A file arrives as `NAME.partial` in the target directory and is renamed once its size and checksum are right; a partial
file is continued by the next run. What was checked is noted in `.ascend-vl-fetch.json`, so that a repeated run reads
no weights again.
"""

import errno
import hashlib
import json
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ascend_vl.checkpoint import json_file
from ascend_vl.checkpoint.hub import RemoteFile, RemoteFiles, Repository, translate
from ascend_vl.checkpoint.inspection import Checkpoint, inspect_files
from ascend_vl.checkpoint.shards import INDEX_ENDING
from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text

NOTES = ".ascend-vl-fetch.json"
_BESIDE_ENDINGS = (".json", ".jinja", ".txt", ".model", ".tiktoken")
_BESIDE_NAMES = ("LICENSE", "LICENSE.txt", "LICENSE.md", "NOTICE")
# Kept free beside the download itself, for logs and caches.
_SPARE_BYTES = 2**30


@dataclass
class Progress:
    """What has arrived, for whoever shows it. `done` counts whole files; `partial` is the file on its way."""

    total: int = 0
    done: int = 0
    name: str = ""
    partial: Path | None = None
    checking: bool = False
    checked: int = 0

    def arrived(self) -> int:
        """Bytes here, those of the file on its way included."""
        try:
            return self.done + (self.partial.stat().st_size if self.partial else 0)
        except OSError:
            return self.done


@dataclass(frozen=True)
class Patience:
    """How often a file is tried without any new byte; seconds of the first wait, which doubles up to the longest."""

    attempts: int = 6
    first_wait: float = 1.0
    longest_wait: float = 60.0

    def wait(self, attempt: int) -> float:
        """Seconds before attempt number `attempt` (from 1)."""
        return min(self.longest_wait, self.first_wait * 2 ** (attempt - 1))


@dataclass
class Fetch:
    """One download into `out`. `remark` is told what went wrong and is being tried again."""

    repository: Repository
    out: Path
    progress: Progress = field(default_factory=Progress)
    patience: Patience = Patience()
    remark: Callable[[Text], None] = lambda text: None

    def remote_checkpoint(self) -> Checkpoint:
        """The repository inspected where it is, before a weight is downloaded. Raises AscendVLError."""
        return inspect_files(RemoteFiles(self.repository))

    def run(self) -> None:
        """Download everything needed. Raises AscendVLError (`fetch-checksum`, `fetch-no-space`, `repository-*`)."""
        try:
            self.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            _require_writable(error, self.out)
            raise
        notes = _read_notes(self.out)
        entries = self.repository.entries
        beside = [path for path in sorted(entries) if is_beside(path)]
        self.progress.total = sum(entries[path].size for path in beside)
        self._all(beside, notes)
        weights = wanted_weights(entries, self.out)
        self.progress.total += sum(entries[path].size for path in weights)
        self._require_space(weights)
        self._all(weights, notes)

    def _all(self, paths: list[str], notes: dict[str, list[object]]) -> None:
        for path in paths:
            self.progress.name = path
            target, entry = self.out / path, self.repository.entries[path]
            if notes.get(path) != _note(target, entry):
                if not self._is_right(target, entry):
                    self._one(path, target, entry)
                notes[path] = _note(target, entry)
                (self.out / NOTES).write_text(json.dumps(notes, indent=1))
            self.progress.done += entry.size

    def _one(self, path: str, target: Path, entry: RemoteFile) -> None:
        """Transfer until whole and right. A file that is wrong twice in a row is given up."""
        partial = target.with_name(target.name + ".partial")
        self.progress.partial = partial
        wrong = 0
        while True:
            self._transfer(path, partial, entry)
            if self._is_right(partial, entry):
                break
            partial.unlink(missing_ok=True)
            wrong += 1
            if wrong == 2:
                raise _wrong(path, self.repository)
            self.remark(Text(f"{path} arrived damaged; downloading it again.", f"{path} 校验不符，正在重新下载。"))
        self.progress.partial = None
        partial.replace(target)

    def _transfer(self, path: str, partial: Path, entry: RemoteFile) -> None:
        """Append to `partial` until it has the listed size; only a try that got further than any before starts anew."""
        attempt, furthest = 0, _size(partial)
        while True:
            before = _size(partial)
            if before > entry.size:
                partial.unlink()
                before = 0
            if before == entry.size and partial.exists():
                return
            try:
                self.repository.transfer(path, partial)
                error = None
            except Exception as raised:
                _require_writable(raised, partial)
                error = translate(raised, self.repository.hub, self.repository.name)
            after = _size(partial)
            if after == entry.size and partial.exists():
                return
            if error is not None and error.code in ("repository-not-found", "repository-refused"):
                raise error
            further = furthest < after <= entry.size
            attempt = 1 if further else attempt + 1
            furthest = after if further else furthest
            if attempt >= self.patience.attempts:
                raise error or _short(path, after, entry.size)
            pause = self.patience.wait(attempt)
            why = error.what if error is not None else Text("the connection ended early", "连接提前结束")
            self.remark(
                Text(
                    f"{path}: {why.en} {after} of {entry.size} bytes are here; going on in {pause:.0f} s.",
                    f"{path}：{why.zh} 已有 {after}/{entry.size} 字节，{pause:.0f} 秒后继续。",
                )
            )
            time.sleep(pause)

    def _is_right(self, path: Path, entry: RemoteFile) -> bool:
        """Whether size and checksum are those the hub lists (size alone where it lists no checksum)."""
        if not path.is_file() or path.stat().st_size != entry.size:
            return False
        digest = _digest(entry)
        if digest is None:
            return True
        self.progress.checking, self.progress.checked = True, 0
        with open(path, "rb") as file:
            while chunk := file.read(2**22):
                digest.update(chunk)
                self.progress.checked += len(chunk)
        self.progress.checking = False
        return digest.hexdigest() == (entry.sha256 or entry.git_sha1)

    def _require_space(self, weights: list[str]) -> None:
        """Raise AscendVLError (`fetch-no-space`) when the disk cannot take what is still to come."""
        entries = self.repository.entries
        needed = 0
        for path in weights:
            target = self.out / path
            here = max(_size(target), _size(target.with_name(target.name + ".partial")))
            needed += max(0, entries[path].size - here)
        free = shutil.disk_usage(self.out).free
        if needed and needed + _SPARE_BYTES > free:
            raise AscendVLError(
                "fetch-no-space",
                Text(f"{self.out} has not enough room.", f"{self.out} 空间不足。"),
                Text(
                    f"{needed / 2**30:.1f} GiB are still to come, {free / 2**30:.1f} GiB are free.",
                    f"还需 {needed / 2**30:.1f} GiB，仅剩 {free / 2**30:.1f} GiB。",
                ),
                Text("Make room, or choose another directory with --out.", "请清理空间，或用 --out 指定其他目录。"),
            )


def is_beside(path: str) -> bool:
    """Whether a repository file is one of the small files beside the weights."""
    return "/" not in path and not path.startswith(".") and (path.endswith(_BESIDE_ENDINGS) or path in _BESIDE_NAMES)


def wanted_weights(entries: Mapping[str, RemoteFile], out: Path) -> list[str]:
    """The safetensors files that the index names, or all at the top level when there is none.

    Raises AscendVLError (`fetch-no-weights`) when the repository has no safetensors file.
    """
    here = sorted(path for path in entries if "/" not in path and path.endswith(".safetensors"))
    if not here:
        raise AscendVLError(
            "fetch-no-weights",
            Text("The repository has no safetensors file at its top.", "仓库顶层没有 safetensors 文件。"),
            Text("Other formats (.bin, .gguf) are not downloaded.", "不会下载其他格式（.bin、.gguf）。"),
            Text("Choose the repository with safetensors weights.", "请选择提供 safetensors 权重的仓库。"),
        )
    index = f"model{INDEX_ENDING}"
    if index not in entries:
        return here
    parsed = json_file.parse((out / index).read_bytes()).value
    listed = parsed.get("weight_map") if isinstance(parsed, dict) else None
    names = set(listed.values()) if isinstance(listed, dict) else set()
    return [path for path in here if path in names] or here


def _digest(entry: RemoteFile) -> "hashlib._Hash | None":
    if entry.sha256:
        return hashlib.sha256()
    if entry.git_sha1:
        # git names a blob by the SHA-1 of this header and the content.
        return hashlib.sha1(f"blob {entry.size}\0".encode(), usedforsecurity=False)
    return None


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _note(path: Path, entry: RemoteFile) -> list[object]:
    """What identifies a checked file: bytes and time of the file here, checksum as listed there."""
    if not path.is_file():
        return []
    found = path.stat()
    return [found.st_size, found.st_mtime_ns, entry.sha256 or entry.git_sha1]


def _read_notes(out: Path) -> dict[str, list[object]]:
    path = out / NOTES
    parsed = json_file.parse(path.read_bytes()).value if path.is_file() else None
    return parsed if isinstance(parsed, dict) else {}


def _wrong(path: str, repository: Repository) -> AscendVLError:
    return AscendVLError(
        "fetch-checksum",
        Text(f"{path} arrives damaged.", f"{path} 下载后校验不符。"),
        Text("Its checksum differed twice from the one the hub lists.", "两次下载的校验值均与模型站所列不同。"),
        Text(
            f"Something between here and {repository.hub} changes data; try another network or --from.",
            f"本机与 {repository.hub} 之间有设备改动数据；请更换网络或用 --from 换站。",
        ),
    )


def _require_writable(error: BaseException, path: Path) -> None:
    """Raise AscendVLError (`fetch-cannot-write`) when the trouble is this machine's disk, not the network."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES):
        raise AscendVLError(
            "fetch-cannot-write",
            Text(f"{path} cannot be written.", f"无法写入 {path}。"),
            Text(f"{error.strerror}.", f"{error.strerror}。"),
            Text(
                "Make room or mend the permissions; what has arrived is kept.",
                "请清理空间或修正权限；已下载部分会保留。",
            ),
        ) from None


def _short(path: str, here: int, wanted: int) -> AscendVLError:
    return AscendVLError(
        "fetch-truncated",
        Text(f"{path} ends early.", f"{path} 提前结束。"),
        Text(f"The server sends {here} of {wanted} bytes.", f"服务器只给出 {here}/{wanted} 字节。"),
        Text(
            "Try again later or use --from; what has arrived is kept.", "请稍后重试或用 --from 换站；已下载部分会保留。"
        ),
    )
