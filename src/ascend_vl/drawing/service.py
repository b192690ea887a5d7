"""Drawing in the API server: from a request to a picture file. Knows the engine by `collective_rpc` only."""

import asyncio
import base64
import contextlib
import logging
import os
import signal
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
from ascend_vl.drawing.job import Job, to_wire
from ascend_vl.drawing.lane import Drawn, Lane, LaneSettings
from ascend_vl.drawing.recipes import DrawingConfig
from ascend_vl.drawing.request import ImageRequest, parse
from ascend_vl.drawing.sequence import token_id
from ascend_vl.language import Text

logger = logging.getLogger("vllm.plugins.ascend_vl")

RANGE_PROMPT = "a red circle on white"
# Other prompts and sizes go beyond what one small drawing shows.
RANGE_MARGIN = 4.0
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
        # With float16: what `drawing_range` found.
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

    settings = LaneSettings.from_environment()
    metrics.WORKSPACE.set(min(status["limit"] for status in statuses))
    lane = Lane(rpc, settings, min(status["limit"] for status in statuses), needs, lambda: _fall(engine))
    service = DrawingService(Bench(drawing, tokenizer, image_processor), lane)
    if first["dtype"] == "float16":
        service.range = await _look_at_range(rpc, service.bench)
    return service


async def _look_at_range(rpc: Callable[..., Awaitable[list[dict[str, Any]]]], bench: Bench) -> dict[str, Any]:
    """Whether float16 holds the activations of one small drawing; a warning where it does not, or only just."""
    side = 2 * bench.config.constants.patch_size
    asked = parse(ImageRequest, {"prompt": RANGE_PROMPT, "size": f"{side}x{side}", "steps": 1, "seed": 0})
    job = bench.prepare(asked, None).jobs[0]
    found = (await rpc("drawing_range", (to_wire(job),)))[0]
    if found["state"] == "failed":
        return {"safe": None, "why": found["code"]}
    limit = found["limit"]
    safe = all(value <= limit / RANGE_MARGIN for value in found["largest"].values())
    if not safe:
        logger.warning("ascend_vl: float16 is not safe for drawing with this checkpoint: %s", found["largest"])
    return {"safe": safe, "largest": {k: v if np.isfinite(v) else "inf" for k, v in found["largest"].items()}}


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


def _fall(engine: Any) -> None:
    """Turn /health bad at once, and end the server soon, so that whoever supervises it starts it again."""

    async def dead() -> None:
        raise RuntimeError("a drawing slice is stuck")

    engine.check_health = dead
    asyncio.get_running_loop().call_later(5.0, os.kill, os.getpid(), signal.SIGTERM)


def unavailable(why: Text) -> Refusal:
    """503: this server has chat only, and why."""
    return Refusal(
        "drawing-unavailable",
        Text("This server cannot draw.", "该服务不能绘图。"),
        why,
        Text("Change the deployment as the reason says; chat is not affected.", "请按原因调整部署；对话不受影响。"),
        status=503,
    )


def obstacle(vllm_config: Any, args: Any) -> Text | None:
    """Why drawing cannot run in this deployment, or None."""
    parallel = vllm_config.parallel_config
    executor = getattr(parallel, "distributed_executor_backend", None)
    compilation = getattr(getattr(vllm_config, "compilation_config", None), "pass_config", None)
    sequence = getattr(compilation, "enable_sp", None) or getattr(compilation, "enable_sequence_parallelism", None)
    flash = os.environ.get("VLLM_ASCEND_ENABLE_FLASHCOMM1", os.environ.get("VLLM_ASCEND_ENABLE_FLASHCOMM", "0"))
    additional = getattr(vllm_config, "additional_config", None) or {}
    checks = (
        (parallel.data_parallel_size == 1, "data parallel size must be 1", "数据并行必须为 1"),
        (parallel.pipeline_parallel_size == 1, "pipeline parallel size must be 1", "流水线并行必须为 1"),
        (
            (getattr(args, "api_server_count", None) or 1) == 1,
            "there must be one API server",
            "只能有一个 API 服务进程",
        ),
        (executor in (None, "uni", "mp"), f"executor {executor} is not uni or mp", f"执行器 {executor} 不是 uni 或 mp"),
        (not sequence, "sequence parallelism must be off", "序列并行必须关闭"),
        (flash in ("", "0") and not additional.get("enable_flashcomm1"), "flashcomm must be off", "flashcomm 必须关闭"),
    )
    for good, en, zh in checks:
        if not good:
            return Text(f"{en[0].upper()}{en[1:]}.", f"{zh}。")
    return None


def b64(data: bytes) -> str:
    """Base64 text."""
    return base64.b64encode(data).decode("ascii")
