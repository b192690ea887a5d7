"""Repositories of Hugging Face and ModelScope, through their own client libraries: list, read a range, transfer."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text

HubName = Literal["huggingface", "modelscope"]
_NAMES = {"huggingface": "Hugging Face", "modelscope": "ModelScope"}
_ENDPOINTS = {"huggingface": "HF_ENDPOINT", "modelscope": "MODELSCOPE_ENDPOINT"}


@dataclass(frozen=True)
class RemoteFile:
    """One file as its hub lists it: bytes, and the SHA-256 of its content or git's SHA-1 of its blob (or neither)."""

    size: int
    sha256: str | None = None
    git_sha1: str | None = None


class Repository(Protocol):
    """One revision of one repository. Methods raise AscendVLError as `translate` makes it."""

    @property
    def hub(self) -> HubName: ...

    @property
    def name(self) -> str: ...

    @property
    def revision(self) -> str:
        """The commit where the hub tells it, else the branch or tag."""
        ...

    @property
    def entries(self) -> Mapping[str, RemoteFile]:
        """Every file by its path in the repository."""
        ...

    def read(self, path: str, start: int, length: int) -> bytes:
        """At most `length` bytes from `start`, by a range request."""
        ...

    def transfer(self, path: str, partial: Path) -> None:
        """Append what is missing to `partial` until it holds the whole file."""
        ...


@dataclass(frozen=True)
class RemoteFiles:
    """A repository's top-level files, to be inspected without downloading weights."""

    repository: Repository

    @property
    def where(self) -> str:
        """hub:owner/name@revision."""
        repository = self.repository
        return f"{repository.hub}:{repository.name}@{repository.revision[:12]}"

    @property
    def sizes(self) -> Mapping[str, int]:
        """File name to bytes."""
        return {path: entry.size for path, entry in self.repository.entries.items() if "/" not in path}

    @property
    def broken_links(self) -> tuple[str, ...]:
        """A hub has none."""
        return ()

    def read(self, name: str, start: int, length: int) -> bytes:
        """At most `length` bytes from `start`."""
        return self.repository.read(name, start, length)


def status_code(error: BaseException) -> int | None:
    """The HTTP status behind a client library's error, or None."""
    seen: BaseException | None = error
    for _ in range(8):
        if seen is None:
            return None
        for holder in (getattr(seen, "response", None), seen):
            code = getattr(holder, "status_code", None)
            if type(code) is int:
                return code
        seen = seen.__cause__ or seen.__context__
    return None


def translate(error: BaseException, hub: HubName, name: str) -> AscendVLError:
    """A client library's error as ours."""
    code, site = status_code(error), _NAMES[hub]
    detail = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:160] if str(error).strip() else '-'}"
    if code == 404 or type(error).__name__ in ("RepositoryNotFoundError", "RevisionNotFoundError", "NotExistError"):
        return AscendVLError(
            "repository-not-found",
            Text(f"{site} has no {name}.", f"{site} 上没有 {name}。"),
            Text(
                "The name or the revision does not exist there, or it is private.", "名称或版本不存在，或为私有仓库。"
            ),
            Text("Check the spelling; --from chooses the hub.", "请检查拼写；可用 --from 选择模型站。"),
        )
    if code in (401, 403):
        variable = "HF_TOKEN" if hub == "huggingface" else "MODELSCOPE_API_TOKEN"
        return AscendVLError(
            "repository-refused",
            Text(f"{site} refuses {name} ({code}).", f"{site} 拒绝访问 {name}（{code}）。"),
            Text("It is private or needs its terms accepted.", "仓库为私有，或需先同意条款。"),
            Text(f"Set {variable} to a token that may read it.", f"请将 {variable} 设为有权限的令牌。"),
        )
    if code in (429, 500, 502, 503, 504):
        return AscendVLError(
            "repository-busy",
            Text(f"{site} does not serve {name} at present ({code}).", f"{site} 暂时无法提供 {name}（{code}）。"),
            Text("The server limits requests or is overloaded.", "服务器限流或过载。"),
            Text("Try again later; what has arrived is kept.", "请稍后重试，已下载的部分会保留。"),
        )
    return AscendVLError(
        "repository-unreachable",
        Text(f"{name} could not be read from {site}.", f"无法从 {site} 读取 {name}。"),
        Text(detail, detail),
        Text(
            f"Check the network; {_ENDPOINTS[hub]} names another server, VLLM_USE_MODELSCOPE=1 or 0 the hub. "
            "Or give the directory of a model that is here.",
            f"请检查网络；可用 {_ENDPOINTS[hub]} 指定镜像，用 VLLM_USE_MODELSCOPE=1 或 0 选择模型站。"
            "或给出本地已有模型的目录。",
        ),
    )


def read_range(url: str, headers: Mapping[str, str], start: int, length: int) -> bytes:
    """Bytes `start` to `start + length` of a URL; a server that ignores ranges is read up to there and left.

    Raises httpx.HTTPError.
    """
    import httpx

    if length == 0:
        return b""
    wanted = {**headers, "Range": f"bytes={start}-{start + length - 1}", "Accept-Encoding": "identity"}
    with httpx.stream("GET", url, headers=wanted, follow_redirects=True, timeout=30) as response:
        if response.status_code == 416:
            return b""
        response.raise_for_status()
        skip = 0 if response.status_code == 206 else start
        found = bytearray()
        for chunk in response.iter_bytes():
            found += chunk
            if len(found) >= skip + length:
                break
        return bytes(found[skip : skip + length])
