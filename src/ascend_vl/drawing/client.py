"""Asking a server for a picture, over HTTP, with its progress."""

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text

OnProgress = Callable[[int, int], None]
OnPreview = Callable[[bytes], None]


@dataclass(frozen=True)
class Answer:
    """A drawn picture: the file's bytes, (width, height), the seed and recipe used, the trace's .npz or None, usage."""

    data: bytes
    size: str
    seed: int
    recipe: str
    trace: bytes | None
    usage: dict[str, Any]


def draw(
    server: httpx.Client,
    prompt: str,
    pictures: Sequence[Path] = (),
    on_progress: OnProgress | None = None,
    on_preview: OnPreview | None = None,
    **fields: Any,
) -> Answer:
    """One picture from the server that `server` is based at. `fields` go into the request as they are (None: left out).

    Raises AscendVLError: `draw-unreachable`, what the server answered with, or `draw-cut-off` when the stream broke.
    """
    body = {key: value for key, value in fields.items() if value is not None}
    body |= {"prompt": prompt, "stream": True, "progress": True}
    if pictures:
        body["images"] = [{"image_url": data_url(path)} for path in pictures]
    path = "/v1/images/edits" if pictures else "/v1/images/generations"
    try:
        with server.stream("POST", path, json=body, timeout=httpx.Timeout(30.0, read=None)) as response:
            if response.status_code != 200:
                response.read()
                raise server_error(response.status_code, response.text)
            for event in events(response.iter_lines()):
                if "error" in event:
                    raise server_error(500, json.dumps(event))
                kind = event["type"]
                if kind == "ascend_vl.progress" and on_progress is not None:
                    on_progress(event["step"], event["steps"])
                elif kind.endswith(".partial_image") and on_preview is not None:
                    on_preview(base64.b64decode(event["b64_json"]))
                elif kind.endswith(".completed"):
                    return _answer(event)
    except httpx.TransportError as error:
        raise _unreachable(str(server.base_url), error) from None
    raise _cut_off()


def events(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """The JSON objects of a stream of server-sent events."""
    for line in lines:
        if line.startswith("data:") and line[5:].strip() != "[DONE]":
            yield json.loads(line[5:])


def data_url(path: Path) -> str:
    """A picture file as a data URL; the server finds out its format. Raises ImageRefused for an unreadable file."""
    from ascend_vl.images import read_file

    return f"data:application/octet-stream;base64,{base64.b64encode(read_file(path)).decode('ascii')}"


def server_error(status: int, text: str) -> AscendVLError:
    """What the server said, as an error of ours."""
    try:
        error = json.loads(text)["error"]
        message, code = str(error["message"]), str(error.get("code") or "")
    except (ValueError, KeyError, TypeError):
        message, code = text[:300].strip(), ""
    if status == 404 and not code.endswith("not_found"):
        return AscendVLError(
            "draw-no-route",
            Text("This server cannot draw.", "该服务不能绘图。"),
            Text("It has no /v1/images routes.", "它没有 /v1/images 接口。"),
            Text("Serve a HiDream-O1 checkpoint with ascend-vl serve.", "请用 ascend-vl serve 启动 HiDream-O1 权重。"),
        )
    return AscendVLError(
        code or "draw-refused",
        Text(f"The server refused ({status}).", f"服务拒绝了请求（{status}）。"),
        Text(message, message),
        Text("Change the request as it says.", "请按提示修改请求。"),
    )


def _answer(event: dict[str, Any]) -> Answer:
    trace = base64.b64decode(event["trace"]) if "trace" in event else None
    return Answer(
        base64.b64decode(event["b64_json"]), event["size"], event["seed"], event["recipe"], trace, event["usage"]
    )


def _unreachable(url: str, error: Exception) -> AscendVLError:
    return AscendVLError(
        "draw-unreachable",
        Text(f"{url} does not answer.", f"{url} 没有响应。"),
        Text(f"{type(error).__name__}: {error}", f"{type(error).__name__}: {error}"),
        Text("Check that the server runs and the address is right.", "请确认服务已启动且地址正确。"),
    )


def _cut_off() -> AscendVLError:
    return AscendVLError(
        "draw-cut-off",
        Text("The stream ended without a picture.", "响应流在图片之前中断。"),
        Text("The server stopped answering.", "服务停止了响应。"),
        Text("See the server's log and try again.", "请查看服务日志后重试。"),
    )
