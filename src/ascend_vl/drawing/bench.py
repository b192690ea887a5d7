"""From a parsed request to jobs, and from raw pixels to a labelled file. No server in it."""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from ascend_vl.drawing import references, sizes
from ascend_vl.drawing.errors import Refusal
from ascend_vl.drawing.job import Job, build_job
from ascend_vl.drawing.label import encode
from ascend_vl.drawing.recipes import DrawingConfig
from ascend_vl.drawing.request import EditRequest, ImageRequest
from ascend_vl.drawing.sequence import check_prompt
from ascend_vl.drawing.trace import trace_bytes
from ascend_vl.language import Text

MAX_TRACE = 512 * 2**20


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

    def file(self, pixels: bytes, name: str) -> bytes:
        """The labelled file of raw RGB bytes; `name` identifies the drawing in the label."""
        width, height = self.size
        array = np.frombuffer(pixels, dtype=np.uint8).reshape(height, width, 3)
        asked = self.request
        return encode(array, asked.output_format, name, asked.output_compression, asked.label)


class Bench:
    """Makes jobs. `tokenizer` and `image_processor` are the checkpoint's own, from Transformers.

    `check_room(width, height)` raises Refusal for a picture that is too large whatever it shows; it is asked before
    anything of that size is made.
    """

    def __init__(
        self,
        config: DrawingConfig,
        tokenizer: Any,
        image_processor: Any,
        check_room: Callable[[int, int], None] = lambda width, height: None,
    ) -> None:
        self.config, self.tokenizer, self.image_processor = config, tokenizer, image_processor
        self._check_room = check_room

    def prepare(self, request: ImageRequest, pictures: Callable[[], Sequence[Image.Image]] | None) -> Prepared:
        """Jobs of a request; `pictures` decodes its references. Raises Refusal."""
        check_prompt(request.prompt)
        constants = self.config.constants
        edit = request if isinstance(request, EditRequest) else None
        size = sizes.parse_size(request.size, constants)
        if request.snap:
            size = sizes.snap(*size, constants)
        sizes.check_size(*size, constants)
        self._check_room(*size)
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
        if request.trace and trace_bytes(jobs[0], recipe.steps) * request.n > MAX_TRACE:
            raise Refusal(
                "drawing-trace",
                Text("The trace would be too large.", "跟踪数据过大。"),
                Text(f"The limit is {MAX_TRACE // 2**20} MiB.", f"上限为 {MAX_TRACE // 2**20} MiB。"),
                Text("Draw a smaller picture or fewer steps.", "请缩小尺寸或减少步数。"),
                "trace",
            )
        return Prepared(request, tuple(jobs))
