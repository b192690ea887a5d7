"""ModelScope through `modelscope_hub` (the client of `modelscope` 1.38 and later), or an older `modelscope` itself.

MODELSCOPE_ENDPOINT and MODELSCOPE_API_TOKEN are the client's own variables.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

from ascend_vl.checkpoint.hub import HubName, RemoteFile, read_range, translate

_SITE = "https://www.modelscope.cn"


@dataclass(frozen=True)
class ModelScopeRepository:
    """One branch, tag or commit of one repository."""

    name: str
    revision: str
    entries: Mapping[str, RemoteFile]
    hub: HubName = "modelscope"

    def read(self, path: str, start: int, length: int) -> bytes:
        """At most `length` bytes from `start`. Raises AscendVLError."""
        try:
            return read_range(_url(self.name, self.revision, path), _headers(), start, length)
        except Exception as error:
            raise translate(error, self.hub, self.name) from None

    def transfer(self, path: str, partial: Path) -> None:
        """Append what is missing to `partial`. Raises what the client raises."""
        start = partial.stat().st_size if partial.exists() else 0
        headers = {"Range": f"bytes={start}-"} if start else {}
        response = _stream(self.name, self.revision, path, headers)
        with response, open(partial, "ab" if response.status_code == 206 else "wb") as file:
            for chunk in response.iter_content(2**16):
                file.write(chunk)


def endpoint() -> str:
    """The server: MODELSCOPE_ENDPOINT, else MODELSCOPE_DOMAIN as older clients have it, else the site."""
    stated = os.environ.get("MODELSCOPE_ENDPOINT") or os.environ.get("MODELSCOPE_DOMAIN") or _SITE
    return (stated if "://" in stated else f"https://{stated}").rstrip("/")


def open_modelscope(name: str, revision: str | None) -> ModelScopeRepository:
    """List `name` at `revision` (default: master). Raises what the client raises."""
    chosen = revision or "master"
    return ModelScopeRepository(name, chosen, dict(_listing(name, chosen)))


def _listing(name: str, revision: str) -> list[tuple[str, RemoteFile]]:
    if find_spec("modelscope_hub"):
        from modelscope_hub.api import HubApi

        files = HubApi(endpoint=endpoint()).list_repo_files(name, "model", revision=revision)
        return [(item.path, RemoteFile(item.size, item.sha256)) for item in files if item.type != "tree"]
    from modelscope.hub.api import HubApi as OlderApi

    listed = OlderApi(endpoint=endpoint()).get_model_files(name, revision=revision, recursive=True)
    return [(item["Path"], RemoteFile(item["Size"], item.get("Sha256"))) for item in listed if item["Type"] != "tree"]


def _stream(name: str, revision: str, path: str, headers: dict[str, str]) -> Any:
    """A streamed `requests.Response`."""
    if find_spec("modelscope_hub"):
        from modelscope_hub.api import HubApi

        return HubApi(endpoint=endpoint()).legacy.download_stream(name, "model", path, revision, headers=headers)
    import requests

    response = requests.get(_url(name, revision, path), headers=headers | _headers(), stream=True, timeout=60)
    response.raise_for_status()
    return response


def _url(name: str, revision: str, path: str) -> str:
    return f"{endpoint()}/api/v1/models/{name}/repo?Revision={quote_plus(revision)}&FilePath={quote_plus(path)}"


def _headers() -> dict[str, str]:
    token = os.environ.get("MODELSCOPE_API_TOKEN")
    return {"Authorization": f"Bearer {token}", "Cookie": f"m_session_id={token}"} if token else {}
