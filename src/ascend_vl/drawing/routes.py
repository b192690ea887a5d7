"""POST /v1/images/generations and /v1/images/edits, and what /v1/models says of drawing.

Errors have OpenAI's shape. Prompts and pictures are not logged. All routes are under /v1, behind vLLM's API key.
"""

import asyncio
import base64
import binascii
import contextlib
import io
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from PIL import Image
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from ascend_vl import images
from ascend_vl.drawing import deployment, text_head
from ascend_vl.drawing.bench import Prepared
from ascend_vl.drawing.errors import Refusal
from ascend_vl.drawing.lane import Busy
from ascend_vl.drawing.references import MAX_REFERENCES
from ascend_vl.drawing.request import EditRequest, ImageRequest, bad_value, parse, partial_steps
from ascend_vl.drawing.service import DrawingService, Picture, b64, open_service, unavailable, untrained
from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text
from ascend_vl.models import names

logger = logging.getLogger("vllm.plugins.ascend_vl")

MAX_BODY = 64 * 2**20
# Of all references of a request together, by their headers.
MAX_PIXELS = 64 * 2**20
KEEP_ALIVE_SECONDS = 15.0
STATE = "ascend_vl_drawing"


def attach(app: Any, args: Any) -> None:
    """Add the routes to a server of HiDream-O1, where drawing is off too, to say so; any other is left as it is."""
    overrides = getattr(args, "hf_overrides", None)
    if isinstance(overrides, str):
        with contextlib.suppress(ValueError):
            overrides = json.loads(overrides)
    if not (isinstance(overrides, dict) and names.DRAWING_KEY in overrides):
        return
    app.router.routes.insert(0, Route("/v1/models", _models, methods=["GET"]))
    app.router.routes.insert(0, Route("/v1/ascend_vl/drawing", _status, methods=["GET"]))
    app.router.routes.insert(0, Route("/v1/images/generations", _generations, methods=["POST"]))
    app.router.routes.insert(0, Route("/v1/images/edits", _edits, methods=["POST"]))


async def init_state(engine_client: Any, state: Any, args: Any) -> None:
    """Open drawing over the engine; where it cannot run, the routes say why and chat goes on."""
    config = getattr(engine_client, "vllm_config", None) or await engine_client.get_vllm_config()
    wanted = getattr(config.model_config.hf_config, names.DRAWING_KEY, None)
    if wanted is None:
        return
    why = deployment.obstacle(deployment.of_engine(config, args))
    if why is None and not wanted:
        why = Text("It was started with drawing off.", "启动时关闭了绘图。")
    if why is not None:
        setattr(state, STATE, unavailable(why))
        logger.warning("ascend_vl: chat only, no drawing: %s", why.en)
        return

    def rpc(method: str, arguments: tuple[Any, ...]) -> Awaitable[list[dict[str, Any]]]:
        return engine_client.collective_rpc(method, args=arguments)

    try:
        service = await open_service(rpc, config.model_config, engine_client)
        setattr(state, STATE, service)
        # Kept on the service: a task that nobody holds may be collected before it ends.
        service.watching = asyncio.ensure_future(_look_at_text(service, engine_client, config.model_config))
    except Refusal as error:
        setattr(state, STATE, unavailable(error.why))
        logger.warning("ascend_vl: chat only, no drawing: %s", error.why.en)


async def _look_at_text(service: DrawingService, engine: Any, model_config: Any) -> None:
    tokenizer = service.bench.tokenizer
    stops = {tokenizer.eos_token_id, getattr(model_config.hf_config, "eos_token_id", None)}
    try:
        service.text = await text_head.look(engine, tokenizer, {stop for stop in stops if isinstance(stop, int)})
    except Exception as error:
        logger.warning("ascend_vl: the text head could not be looked at: %s", type(error).__name__)
        return
    if service.text["degenerate"]:
        logger.warning("ascend_vl: this checkpoint's text head is degenerate; chat is served and says nothing useful")


def _service(request: Request) -> DrawingService:
    found = getattr(request.app.state, STATE, None)
    if isinstance(found, DrawingService):
        return found
    raise found or unavailable(Text("The server is still starting.", "服务仍在启动。"))


async def _models(request: Request) -> Response:
    """vLLM's own answer, with what each model can do."""
    listed = await request.app.state.openai_serving_models.show_available_models()
    content = listed.model_dump()
    found = getattr(request.app.state, STATE, None)
    if isinstance(found, DrawingService):
        drawing, can = found.capabilities(), ["chat", *found.bench.config.tasks]
    else:
        why = str(found.why) if isinstance(found, Refusal) else None
        drawing, can = {"available": False, "why": why}, ["chat"]
    for card in content["data"]:
        card["ascend_vl"] = {"capabilities": can, "drawing": drawing}
        if isinstance(found, DrawingService):
            card["ascend_vl"]["text"] = found.text
    return JSONResponse(content)


async def _status(request: Request) -> Response:
    """The lane and what each worker holds: to see that nothing was left behind."""
    try:
        return JSONResponse(await _service(request).lane.status())
    except AscendVLError as error:
        return _error(error)


async def _generations(request: Request) -> Response:
    return await _answer(request, ImageRequest, "image_generation")


async def _edits(request: Request) -> Response:
    return await _answer(request, EditRequest, "image_edit")


async def _answer(request: Request, kind: type[ImageRequest], event: str) -> Response:
    try:
        service = _service(request)
        service.lane.check()
        values, pictures = await _read(request, kind)
        asked = parse(kind, values)
        # A trace is asked for to compare numbers, and those are right or wrong whatever the training.
        if event not in service.bench.config.tasks and not asked.trace:
            raise untrained(event)
        await _check_model(request, asked.model)
        service.lane.check(1 if asked.stream else asked.n)
        prepared = await service.prepare(asked, pictures)
        if asked.stream:
            service.lane.check()
            return StreamingResponse(
                _events(service, prepared, event), media_type="text/event-stream", headers={"Cache-Control": "no-cache"}
            )
        drawn = await _unless_gone(request, _all(service, prepared))
        return Response(status_code=499) if drawn is None else JSONResponse(_body(prepared, drawn))
    except AscendVLError as error:
        return _error(error)
    except Exception:
        logger.exception("ascend_vl: drawing failed")
        return _error(_internal())


async def _all(service: DrawingService, prepared: Prepared) -> list[Picture]:
    """All pictures of a request; they take their places in the lane at once. One failure ends them all."""
    tasks = [asyncio.ensure_future(service.picture(prepared, k)) for k in range(len(prepared.jobs))]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _unless_gone(request: Request, work: Awaitable[Any]) -> Any:
    """The work's result, or None if the client went away, which cancels it."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnect(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        task.cancel()
        await asyncio.wait({task})
        return None
    finally:
        gone.cancel()
        if not task.done():
            task.cancel()


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _body(prepared: Prepared, pictures: Sequence[Picture]) -> dict[str, Any]:
    data = []
    for picture in pictures:
        item: dict[str, Any] = {"b64_json": b64(picture.data), "seed": picture.seed}
        if picture.trace is not None:
            item["trace"] = b64(picture.trace)
        data.append(item)
    return {
        "created": int(time.time()),
        "data": data,
        **_described(prepared),
        "recipe": prepared.jobs[0].recipe.name,
        "usage": prepared.usage(),
    }


def _described(prepared: Prepared) -> dict[str, Any]:
    width, height = prepared.size
    return {
        "size": f"{width}x{height}",
        "quality": "high",
        "background": "opaque",
        "output_format": prepared.request.output_format,
    }


async def _events(service: DrawingService, prepared: Prepared, event: str) -> AsyncIterator[bytes]:
    """Server-sent events: previews, progress, the picture; or an error. The drawing ends when the client goes."""
    queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
    task = asyncio.ensure_future(_draw_into(queue, service, prepared, event))
    try:
        while True:
            try:
                item = await asyncio.wait_for(queue.get(), KEEP_ALIVE_SECONDS)
            except asyncio.TimeoutError:
                yield b": still drawing\n\n"
                continue
            if item is None:
                return
            yield f"event: {item.get('type', 'error')}\ndata: {json.dumps(item)}\n\n".encode()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _draw_into(
    queue: "asyncio.Queue[dict[str, Any] | None]", service: DrawingService, prepared: Prepared, event: str
) -> None:
    asked = prepared.request
    wanted = partial_steps(asked.partial_images, prepared.jobs[0].recipe.steps)
    sent = 0

    async def progress(step: int, steps: int, preview: Callable[[], Awaitable[bytes | None]]) -> None:
        nonlocal sent
        if asked.progress:
            queue.put_nowait({"type": "ascend_vl.progress", "step": step, "steps": steps})
        pixels = await preview() if step in wanted else None
        if pixels is not None:
            data = await asyncio.to_thread(prepared.file, pixels, "preview")
            queue.put_nowait(
                {
                    "type": f"{event}.partial_image",
                    "partial_image_index": sent,
                    "b64_json": b64(data),
                    "created_at": int(time.time()),
                    **_described(prepared),
                }
            )
            sent += 1

    try:
        picture = await service.picture(prepared, 0, progress)
        last: dict[str, Any] = {
            "type": f"{event}.completed",
            "b64_json": b64(picture.data),
            "created_at": int(time.time()),
            "seed": picture.seed,
            "recipe": prepared.jobs[0].recipe.name,
            **_described(prepared),
            "usage": prepared.usage(),
        }
        if picture.trace is not None:
            last["trace"] = b64(picture.trace)
        queue.put_nowait(last)
    except AscendVLError as error:
        queue.put_nowait(_error_body(error))
    except Exception:
        logger.exception("ascend_vl: drawing failed")
        queue.put_nowait(_error_body(_internal()))
    queue.put_nowait(None)


async def _check_model(request: Request, model: str | None) -> None:
    if model is None:
        return
    known = [base.name for base in request.app.state.openai_serving_models.base_model_paths]
    if model not in known:
        raise Refusal(
            "model_not_found",
            Text(f"There is no model {model!r} here.", f"没有模型 {model!r}。"),
            Text(f"This server has {', '.join(known)}.", f"该服务提供：{', '.join(known)}。"),
            Text("Use that name.", "请使用该名称。"),
            "model",
            status=404,
        )


async def _read(request: Request, kind: type[ImageRequest]) -> tuple[dict[str, Any], Any]:
    """Fields of a JSON or multipart body, and a function that decodes its references (None for a generation)."""
    await _read_body(request)
    content = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content == "multipart/form-data" and issubclass(kind, EditRequest):
        return await _read_form(request)
    try:
        values = json.loads(await request.body())
    except (ValueError, RecursionError):
        raise bad_value(None, Text("It is not JSON.", "不是合法的 JSON。")) from None
    if not isinstance(values, dict):
        raise bad_value(None, Text("The body must be a JSON object.", "请求体应为 JSON 对象。"))
    if not issubclass(kind, EditRequest):
        return values, None
    given = values.pop("images", None)
    single = values.pop("image", None)
    given = given if given is not None else single
    listed = given if isinstance(given, list) else [] if given is None else [given]
    return values, _decoder([_inline(item) for item in listed])


async def _read_body(request: Request) -> None:
    """Read the body up to MAX_BODY. Raises Refusal 413 beyond it."""
    size, parts = 0, []
    async for part in request.stream():
        size += len(part)
        if size > MAX_BODY:
            raise Refusal(
                "request-too-large",
                Text("The request is too large.", "请求过大。"),
                Text(f"The limit is {MAX_BODY // 2**20} MiB.", f"上限为 {MAX_BODY // 2**20} MiB。"),
                Text("Send smaller pictures.", "请发送更小的图片。"),
                status=413,
            )
        parts.append(part)
    request._body = b"".join(parts)


async def _read_form(request: Request) -> tuple[dict[str, Any], Any]:
    from starlette.datastructures import UploadFile
    from starlette.exceptions import HTTPException
    from starlette.formparsers import MultiPartException

    values: dict[str, Any] = {}
    files: list[bytes] = []
    try:
        async with request.form(max_files=MAX_REFERENCES + 2, max_fields=64) as form:
            for key, value in form.multi_items():
                if isinstance(value, UploadFile):
                    if key not in ("image", "image[]", "images", "images[]"):
                        values[key] = "a file"
                    else:
                        files.append(await value.read())
                else:
                    values[key.removesuffix("[]")] = value
    except (MultiPartException, HTTPException) as error:
        detail = str(getattr(error, "message", None) or getattr(error, "detail", error))
        raise bad_value(None, Text(f"{detail}.", f"{detail}。")) from None
    return values, _decoder(files)


def _inline(item: Any) -> bytes:
    """The file in a data URL or plain base64; servers are not fetched from."""
    if isinstance(item, dict):
        item = item.get("image_url") or item.get("b64_json") or item.get("url")
        if isinstance(item, dict):
            item = item.get("url")
    if not isinstance(item, str):
        raise bad_value("image", Text("Give data URLs or base64.", "请给出 data URL 或 base64。"))
    if item[:5].lower() == "data:":
        return images.read_data_url(item)
    if "://" in item[:16]:
        raise bad_value("image", Text("Pictures are not fetched from addresses.", "不会从网址下载图片。"))
    try:
        return base64.b64decode(item, validate=True)
    except (ValueError, binascii.Error):
        raise bad_value("image", Text("It is not base64.", "不是合法的 base64。")) from None


def _decoder(files: Sequence[bytes]) -> Callable[[], list[Image.Image]]:
    if not files:
        raise bad_value("image", Text("An edit needs at least one picture.", "编辑至少需要一张图片。"))
    if len(files) > MAX_REFERENCES:
        raise bad_value("image", Text(f"At most {MAX_REFERENCES} pictures.", f"最多 {MAX_REFERENCES} 张图片。"))

    def decode() -> list[Image.Image]:
        total = 0
        for data in files:
            with contextlib.suppress(Exception):  # a file that cannot be opened is refused when it is decoded
                width, height = Image.open(io.BytesIO(data)).size
                total += width * height
        if total > MAX_PIXELS:
            raise bad_value(
                "image",
                Text(f"Together they have {total} pixels, over {MAX_PIXELS}.", f"总像素 {total} 超过 {MAX_PIXELS}。"),
            )
        return [images.decode(data) for data in files]

    return decode


def _internal() -> Refusal:
    return Refusal(
        "drawing-failed",
        Text("The picture could not be drawn.", "绘图失败。"),
        Text("The server met an error of its own.", "服务内部出错。"),
        Text("The server's log has the details.", "详情见服务日志。"),
        status=500,
    )


def _error_body(error: AscendVLError) -> dict[str, Any]:
    status = getattr(error, "status", 400)
    kind = "invalid_request_error" if status < 500 and status != 429 else "server_error"
    if status == 429:
        kind = "rate_limit_error"
    message = f"{error.what} {error.why} {error.do}"
    param = getattr(error, "param", None) or ("image" if isinstance(error, images.ImageRefused) else None)
    return {"error": {"message": message, "type": kind, "param": param, "code": error.code}}


def _error(error: AscendVLError) -> JSONResponse:
    headers = {"Retry-After": str(error.retry_after)} if isinstance(error, Busy) else None
    return JSONResponse(_error_body(error), getattr(error, "status", 400), headers=headers)
