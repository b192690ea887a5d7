"""Drawing in the API server: from a request to a picture file. Knows the engine by `collective_rpc` only."""

import asyncio
import base64
import contextlib
import os
import secrets
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ascend_vl.drawing import references, sizes
from ascend_vl.drawing.budget import Shape, request_bytes
from ascend_vl.drawing.errors import Refusal
from ascend_vl.drawing.job import Job, build_job
from ascend_vl.drawing.label import encode
from ascend_vl.drawing.lane import Drawn, Lane, LaneSettings
from ascend_vl.drawing.recipes import DrawingConfig
from ascend_vl.drawing.request import EditRequest, ImageRequest
from ascend_vl.drawing.sequence import check_prompt, token_id
from ascend_vl.drawing.trace import trace_bytes
from ascend_vl.language import Text

MAX_TRACE = 512 * 2**20
Progress = Callable[[int, int, Callable[[], Awaitable[bytes | None]]], Awaitable[None]]


@dataclass(frozen=True)
class Picture:
    """One drawn file with what the answer says about it. `data` encoded; `trace` an .npz or None."""

    data: bytes
    seed: int
    drawn: Drawn
    trace: bytes | None


@dataclass(frozen=True)
class Prepared:
    """A request's jobs, one a picture, seeds rising."""

    request: ImageRequest
    jobs: tuple[Job, ...]

    @property
    def size(self) -> tuple[int, int]:
        """(width, height) that will be drawn."""
        return self.jobs[0].width, self.jobs[0].height

    def usage(self) -> dict[str, Any]:
        """OpenAI's usage: tokens of the prompt's branch, reference patches, and target patches a picture."""
        job = self.jobs[0]
        seen = sum(r * c for r, c in job.conditions.grids) if job.conditions else 0
        text = len(job.branches[0].input_ids) - seen
        pictures = seen + job.reference_tokens
        out = job.target_tokens * len(self.jobs)
        return {
            "input_tokens": text + pictures,
            "input_tokens_details": {"text_tokens": text, "image_tokens": pictures},
            "output_tokens": out,
            "output_tokens_details": {"text_tokens": 0, "image_tokens": out},
            "total_tokens": text + pictures + out,
        }


class DrawingService:
    """What the routes use. `tokenizer` and `image_processor` are the checkpoint's own, from Transformers."""

    def __init__(self, config: DrawingConfig, tokenizer: Any, image_processor: Any, lane: Lane) -> None:
        self.config, self.tokenizer, self.image_processor, self.lane = config, tokenizer, image_processor, lane
        # Decoding and resizing is the only heavy work of this process: one request at a time, off the event loop.
        self._bench = asyncio.Semaphore(1)

    async def prepare(self, request: ImageRequest, pictures: Callable[[], Sequence[Image.Image]] | None) -> Prepared:
        """Jobs of a request; `pictures` decodes its references. Raises Refusal."""
        check_prompt(request.prompt)
        async with self._bench:
            return await asyncio.to_thread(self._prepare, request, pictures)

    def _prepare(self, request: ImageRequest, pictures: Callable[[], Sequence[Image.Image]] | None) -> Prepared:
        constants = self.config.constants
        edit = request if isinstance(request, EditRequest) else None
        size = sizes.parse_size(request.size, constants)
        if request.snap:
            size = sizes.snap(*size, constants)
        sizes.check_size(*size, constants)
        loaded = list(pictures()) if pictures else []
        prepared, size = references.prepare(
            loaded, size, constants, edit.layout if edit else None, edit.keep_aspect if edit else False
        )
        recipe = self.config.recipe(request.recipe, len(prepared), **request.overrides())
        first = secrets.randbelow(2**31) if request.seed is None else request.seed
        steps = range(recipe.steps) if request.trace else None
        jobs = [
            build_job(
                *(request.prompt, size, first + k, recipe, prepared, self.tokenizer, self.image_processor, constants),
                exact=request.exact,
                trace_steps=steps,
            )
            for k in range(request.n)
        ]
        self.lane.check_size(jobs[0])
        if request.trace and trace_bytes(jobs[0], recipe.steps) * request.n > MAX_TRACE:
            raise Refusal(
                "drawing-trace",
                Text("The trace would be too large.", "跟踪数据过大。"),
                Text(f"The limit is {MAX_TRACE // 2**20} MiB.", f"上限为 {MAX_TRACE // 2**20} MiB。"),
                Text("Draw a smaller picture or fewer steps.", "请缩小尺寸或减少步数。"),
                "trace",
            )
        return Prepared(request, tuple(jobs))

    async def picture(self, prepared: Prepared, k: int, progress: Progress | None = None) -> Picture:
        """Draw the k-th picture of a request. Raises Refusal."""
        job, request = prepared.jobs[k], prepared.request
        drawn = await self.lane.draw(job, progress)
        data = await asyncio.to_thread(self.file, prepared, drawn.pixels, drawn.name)
        return Picture(data, job.seed, drawn, drawn.trace if request.trace else None)

    def file(self, prepared: Prepared, pixels: bytes, name: str) -> bytes:
        """The labelled file of raw RGB bytes."""
        width, height = prepared.size
        array = np.frombuffer(pixels, dtype=np.uint8).reshape(height, width, 3)
        request = prepared.request
        return encode(array, request.output_format, name, request.output_compression, request.label)

    def capabilities(self) -> dict[str, Any]:
        """What /v1/models says of drawing."""
        constants = self.config.constants
        return {
            "available": True,
            "recipes": sorted(self.config.recipes),
            "default_recipe": self.config.default_recipe,
            "default_size": "x".join(map(str, constants.default_size)),
            "size_multiple_of": constants.patch_size,
            "max_references": references.MAX_REFERENCES,
            "layout": True,
            "mask": False,
            "output_formats": ["png", "jpeg", "webp"],
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
    lane = Lane(rpc, settings, min(status["limit"] for status in statuses), needs, lambda: _fall(engine))
    return DrawingService(drawing, tokenizer, image_processor, lane)


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
