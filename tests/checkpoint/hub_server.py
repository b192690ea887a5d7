"""A server on the loopback interface that speaks what the clients of both hubs ask, and misbehaves on request."""

import hashlib
import json
import threading
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlparse

REPOSITORY = "owner/name"
COMMIT = "c0ffee" + "0" * 34


class HubServer:
    """Serves the files of `root` as `owner/name`.

    `faults[file]` is a list that each transfer of that file takes one entry from: an HTTP status, ("break", n) to
    close the connection after n bytes, ("flip", n) to change byte n, ("short", n) to end properly after n,
    ("hang", n) to fall silent after n until the server is left, or None.
    Range requests with an end (what an inspection asks) are always served well. `log`: (file, first byte, status).
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.faults: dict[str, list] = defaultdict(list)
        self.listing_faults: list[int] = []
        self.ranges = True
        self.log: list[tuple[str, int, int]] = []
        self.sent = 0
        self.left = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> "HubServer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.left.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def files(self) -> dict[str, bytes]:
        return {str(path.relative_to(self.root)): path.read_bytes() for path in self.root.rglob("*") if path.is_file()}

    def huggingface_listing(self) -> dict:
        siblings = []
        for name, raw in self.files().items():
            entry: dict = {"rfilename": name, "size": len(raw)}
            if name.endswith((".safetensors", ".bin")):
                entry["lfs"] = {"sha256": hashlib.sha256(raw).hexdigest(), "size": len(raw), "pointerSize": 134}
            entry["blobId"] = hashlib.sha1(f"blob {len(raw)}\0".encode() + raw).hexdigest()
            siblings.append(entry)
        return {
            "id": REPOSITORY,
            "modelId": REPOSITORY,
            "sha": COMMIT,
            "siblings": siblings,
            "tags": [],
            "private": False,
            "downloads": 0,
            "likes": 0,
        }

    def modelscope_listing(self) -> dict:
        files = [
            {"Path": name, "Name": name, "Size": len(raw), "Sha256": hashlib.sha256(raw).hexdigest(), "Type": "blob"}
            for name, raw in self.files().items()
        ]
        return {"Code": 200, "Success": True, "Message": "", "Data": {"Files": files}}


def _handler(hub: HubServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            url = urlparse(self.path)
            path, query = unquote(url.path), parse_qs(url.query)
            if path.startswith(f"/api/models/{REPOSITORY}"):
                self.listing(hub.huggingface_listing())
            elif path == f"/api/v1/models/{REPOSITORY}/repo/files":
                self.listing(hub.modelscope_listing())
            elif path == f"/api/v1/models/{REPOSITORY}/repo":
                self.file(query["FilePath"][0])
            elif path.startswith(f"/{REPOSITORY}/resolve/{COMMIT}/"):
                self.file(path.partition(f"/resolve/{COMMIT}/")[2])
            else:
                self.status(404)

        def listing(self, document: dict) -> None:
            if hub.listing_faults:
                return self.status(hub.listing_faults.pop(0))
            self.whole(json.dumps(document).encode(), "application/json")

        def status(self, code: int) -> None:
            self.send_response(code)
            if code in (429, 503):
                self.send_header("Retry-After", "0")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def whole(self, raw: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def file(self, name: str) -> None:
            raw = hub.files().get(name)
            if raw is None:
                return self.status(404)
            first, last = self.wanted(len(raw))
            header_read = "Range" in self.headers and last < len(raw) - 1
            fault = None if header_read or not hub.faults[name] else hub.faults[name].pop(0)
            if isinstance(fault, int):
                hub.log.append((name, first, fault))
                return self.status(fault)
            if first >= len(raw) > 0:
                return self.status(416)
            kind, place = fault or ("", 0)
            if kind == "flip":
                raw = raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :]
            body = raw[first : last + 1]
            if kind == "short":
                body = body[:place]
            partial = "Range" in self.headers and hub.ranges
            code = 206 if partial else 200
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            if partial:
                self.send_header("Content-Range", f"bytes {first}-{first + len(body) - 1}/{len(raw)}")
            self.end_headers()
            hub.log.append((name, first, code))
            if kind in ("break", "hang"):
                body = body[:place]
                self.close_connection = True
            hub.sent += len(body)
            self.wfile.write(body)
            if kind == "hang":
                hub.left.wait(60)
            if kind == "break":
                self.wfile.flush()
                self.connection.close()

        def wanted(self, size: int) -> tuple[int, int]:
            stated = self.headers.get("Range", "")
            if not stated or not hub.ranges:
                return 0, size - 1
            first, _, last = stated.removeprefix("bytes=").partition("-")
            return int(first), min(int(last), size - 1) if last else size - 1

    return Handler
