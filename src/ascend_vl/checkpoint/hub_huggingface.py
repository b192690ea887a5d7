"""Hugging Face through `huggingface_hub` (0.23 to 2.x). HF_ENDPOINT, HF_TOKEN and HF_HOME are its own."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ascend_vl.checkpoint.hub import HubName, RemoteFile, read_range, translate


@dataclass(frozen=True)
class HuggingFaceRepository:
    """One commit of one repository."""

    name: str
    revision: str
    entries: Mapping[str, RemoteFile]
    hub: HubName = "huggingface"

    def _url(self, path: str) -> str:
        from huggingface_hub import hf_hub_url

        return hf_hub_url(self.name, path, revision=self.revision, endpoint=endpoint())

    def read(self, path: str, start: int, length: int) -> bytes:
        """At most `length` bytes from `start`. Raises AscendVLError."""
        from huggingface_hub.utils import build_hf_headers

        try:
            return read_range(self._url(path), build_hf_headers(), start, length)
        except Exception as error:
            raise translate(error, self.hub, self.name) from None

    def transfer(self, path: str, partial: Path) -> None:
        """Append what is missing to `partial`. Raises what the library raises.

        By `http_get`, which continues where a file ends; the library's own download starts anew after an interruption.
        """
        from huggingface_hub.file_download import http_get
        from huggingface_hub.utils import build_hf_headers, disable_progress_bars, logging

        disable_progress_bars()
        logging.set_verbosity_error()
        with open(partial, "ab") as file:
            http_get(
                self._url(path),
                file,
                resume_size=file.tell(),
                headers=build_hf_headers(),
                expected_size=self.entries[path].size,
            )


def endpoint() -> str | None:
    """HF_ENDPOINT as it is now (the library reads it once, at import)."""
    return (os.environ.get("HF_ENDPOINT") or "").rstrip("/") or None


def open_huggingface(name: str, revision: str | None) -> HuggingFaceRepository:
    """List `name` at `revision` (default: main). Raises what the library raises."""
    from huggingface_hub import HfApi

    info = HfApi(endpoint=endpoint()).model_info(name, revision=revision, files_metadata=True, timeout=30)
    entries = {
        item.rfilename: RemoteFile(
            size=item.size or 0,
            sha256=item.lfs["sha256"] if item.lfs else None,
            git_sha1=None if item.lfs else item.blob_id,
        )
        for item in info.siblings or []
    }
    return HuggingFaceRepository(name, info.sha or revision or "main", entries)


def cached_snapshot(name: str, revision: str | None) -> Path | None:
    """The snapshot of `name` that is in the local hub cache and holds weights, or None. Touches no network."""
    try:
        from huggingface_hub import constants
    except ImportError:
        return None
    root = Path(os.environ.get("HF_HUB_CACHE") or constants.HF_HUB_CACHE) / f"models--{name.replace('/', '--')}"
    reference = root / "refs" / (revision or "main")
    commit = reference.read_text().strip() if reference.is_file() else revision
    if not commit:
        return None
    snapshot = root / "snapshots" / commit
    return snapshot if any(snapshot.glob("*.safetensors")) else None
