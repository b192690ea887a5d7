"""Drawing in the API server: from a request to a picture file. Knows the engine by `collective_rpc` only."""

import asyncio
import base64
import contextlib
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ascend_vl.drawing import metrics, references
from ascend_vl.drawing.bench import Bench, Prepared
from ascend_vl.drawing.budget import Shape, request_bytes
from ascend_vl.drawing.errors import Refusal
from ascend_vl.drawing.job import Job
from ascend_vl.drawing.lane import Drawn, Lane, LaneSettings
from ascend_vl.drawing.recipes import DrawingConfig
from ascend_vl.drawing.request import ImageRequest
from ascend_vl.drawing.sequence import token_id
from ascend_vl.language import Text

# For whoever asks /health to see why.
SECONDS_TO_BE_SEEN = 5.0
Progress = Callable[[int, int, Callable[[], Awaitable[bytes | None]]], Awaitable[None]]


@dataclass(frozen=True)
class Picture:
    """One drawn file with what the answer says about it. `data` encoded; `trace` an .npz or None."""

    data: bytes
    seed: int
    drawn: Drawn
    trace: bytes | None


class DrawingService:
    """What the routes use."""

    def __init__(self, bench: Bench, lane: Lane) -> None:
        self.bench, self.lane = bench, lane
        # What `text_head.look` found; None until it has.
        self.text: dict[str, Any] | None = None
        # How the workers attend (drawing.attention).
        self.attention: str | None = None
        # With float16: what `dtype_range` found.
        self.range: dict[str, Any] | None = None
        self.watching: asyncio.Future[None] | None = None
        # Decoding and resizing is the only heavy work of this process: one request at a time, off the event loop.
        self._turn = asyncio.Semaphore(1)

    async def prepare(self, request: ImageRequest, pictures: Callable[[], Sequence[Image.Image]] | None) -> Prepared:
        """Jobs of a request; `pictures` decodes its references. Raises Refusal."""
        async with self._turn:
            prepared = await asyncio.to_thread(self.bench.prepare, request, pictures)
        self.lane.check_size(prepared.jobs[0])
        return prepared

    async def picture(self, prepared: Prepared, k: int, progress: Progress | None = None) -> Picture:
        """Draw the k-th picture of a request. Raises Refusal."""
        job, request = prepared.jobs[k], prepared.request
        drawn = await self.lane.draw(job, progress)
        data = await asyncio.to_thread(prepared.file, drawn.pixels, drawn.name)
        return Picture(data, job.seed, drawn, drawn.trace if request.trace else None)

    def capabilities(self) -> dict[str, Any]:
        """What /v1/models says of drawing."""
        config = self.bench.config
        constants = config.constants
        return {
            "available": True,
            "recipes": sorted(config.recipes),
            "default_recipe": config.default_recipe,
            "default_size": "x".join(map(str, constants.default_size)),
            "size_multiple_of": constants.patch_size,
            "max_references": references.MAX_REFERENCES,
            "layout": True,
            "mask": False,
            "output_formats": ["png", "jpeg", "webp"],
            "attention": self.attention,
            **({} if self.range is None else {"float16": self.range}),
        }


async def open_service(
    rpc: Callable[..., Awaitable[list[dict[str, Any]]]], model_config: Any, engine: Any
) -> DrawingService:
    """The service over an engine. Raises Refusal when its workers or its tokenizer cannot draw."""
    config = model_config.hf_config.to_dict()
    drawing = DrawingConfig.from_checkpoint(config, str(model_config.model))
    tokenizer, image_processor = await asyncio.to_thread(_load, model_config)
    token_id(tokenizer, drawing.constants.tms_token, drawing.constants.tms_token_id)
    statuses = await rpc("drawing_open", ())
    failed = [status for status in statuses if status["state"] == "failed"]
    if failed:
        raise unavailable(Text(failed[0]["why"], failed[0]["why"]))
    first = statuses[0]
    bytes_each = {"float32": 4}.get(first["dtype"], 2)
    shape = Shape.of(config, bytes_each, first["ranks"], drawing.constants.patch_size)

    def needs(job: Job) -> int:
        return request_bytes(shape, job.target_tokens, job.reference_tokens, [b.prefix for b in job.branches])

    def check_room(width: int, height: int) -> None:
        patches = width * height // drawing.constants.patch_size**2
        lane.check_room(width, height, request_bytes(shape, patches, 0, [1]))

    settings = LaneSettings.from_environment()
    metrics.WORKSPACE.set(min(status["limit"] for status in statuses))
    lane = Lane(
        rpc,
        settings,
        min(status["limit"] for status in statuses),
        needs,
        lambda: _fall(engine),
        lambda: _chatting(engine),
    )
    service = DrawingService(Bench(drawing, tokenizer, image_processor, check_room), lane)
    service.attention = first["attention"]
    if first.get("range"):
        service.range = _told(first["range"])
    return service


def _told(found: dict[str, Any]) -> dict[str, Any]:
    """What `dtype_range.Found` says, in JSON, which has no infinity."""
    largest = {place: value if np.isfinite(value) else "inf" for place, value in found["largest"].items()}
    return {"safe": found["safe"], "residual_scale": found["scale"], "largest": largest}


def _load(model_config: Any) -> tuple[Any, Any]:
    from transformers import AutoImageProcessor, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_config.tokenizer)
    if not tokenizer.chat_template:
        # Older checkpoints keep it in the processor's file.
        file = Path(str(model_config.model)) / "chat_template.json"
        with contextlib.suppress(OSError, ValueError, KeyError):
            import json

            tokenizer.chat_template = json.loads(file.read_text(encoding="utf-8"))["chat_template"]
    return tokenizer, AutoImageProcessor.from_pretrained(model_config.model)


def _chatting(engine: Any) -> bool:
    """Whether text requests are under way, as far as this vLLM's API process tells."""
    processor = getattr(engine, "output_processor", None)
    return processor is not None and bool(processor.has_unfinished_requests())


def _fall(engine: Any) -> None:
    """Turn /health bad at once, and end the server soon as a failure, so that its supervisor starts it again."""

    from vllm.v1.engine.exceptions import EngineDeadError

    async def dead() -> None:
        # The one error that vLLM's /health answers with 503; any other would close the connection of who asks.
        raise EngineDeadError()

    engine.check_health = dead
    asyncio.get_running_loop().call_later(SECONDS_TO_BE_SEEN, _end)


def _end() -> None:
    """Kill all workers, which may never answer a polite request, and leave with a code that means failure."""
    import psutil

    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            child.kill()
    os._exit(1)


def unavailable(why: Text) -> Refusal:
    """503: this server has chat only, and why."""
    return Refusal(
        "drawing-unavailable",
        Text("This server cannot draw.", "该服务不能绘图。"),
        why,
        Text("Change the deployment as the reason says; chat is not affected.", "请按原因调整部署；对话不受影响。"),
        status=503,
    )


def untrained(task: str) -> Refusal:
    """400: the checkpoint's own files do not list this task."""
    return Refusal(
        "drawing-task",
        Text("This checkpoint does not edit pictures.", "该权重不支持图片编辑。"),
        Text(f"Its config.json does not list {task} among its tasks.", f"其 config.json 的 tasks 未列出 {task}。"),
        Text(
            "Ask for a picture without references, or serve another checkpoint.", "请不带参考图绘制，或改用其他权重。"
        ),
    )


def b64(data: bytes) -> str:
    """Base64 text."""
    return base64.b64encode(data).decode("ascii")
