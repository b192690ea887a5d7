"""What clients may ask for: OpenAI's fields of images.generate and images.edit, and ours. Nothing is silently ignored.

An unsupported value is refused with 400 and the field's name, never replaced by another.
"""

import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ascend_vl.drawing.errors import Refusal
from ascend_vl.drawing.job import MAX_SEED
from ascend_vl.drawing.recipes import MAX_STEPS
from ascend_vl.language import Text

MAX_PROMPT = 32_000
MAX_PICTURES = 10
MAX_PARTIAL = 3


def _boolean(value: Any) -> Any:
    # Form fields are strings.
    return (
        {"true": True, "1": True, "false": False, "0": False}.get(value.lower(), value)
        if isinstance(value, str)
        else value
    )


def _json(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise ValueError("not JSON") from None


Bool = Annotated[bool, BeforeValidator(_boolean)]
Ints = Annotated[list[int], BeforeValidator(_json)]


class ImageRequest(BaseModel):
    """Fields of a generation. `size` is WIDTHxHEIGHT in pixels; the k-th of `n` pictures is drawn with seed + k."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    prompt: str = Field(max_length=MAX_PROMPT)
    model: str | None = None
    n: int = Field(1, ge=1, le=MAX_PICTURES)
    size: str = "auto"
    seed: int | None = Field(None, ge=0, le=MAX_SEED - MAX_PICTURES)
    response_format: Literal["b64_json"] = "b64_json"
    output_format: Literal["png", "jpeg", "webp"] = "png"
    output_compression: int = Field(100, ge=0, le=100)
    background: Literal["auto", "opaque"] = "auto"
    quality: Literal["auto", "standard", "high"] = "auto"
    moderation: Literal["auto", "low"] = "auto"
    style: None = None
    user: str | None = None
    safety_identifier: str | None = None
    stream: Bool = False
    partial_images: int = Field(0, ge=0, le=MAX_PARTIAL)

    recipe: str | None = None
    steps: int | None = Field(None, ge=1, le=MAX_STEPS)
    guidance_scale: float | None = None
    shift: float | None = None
    scheduler: str | None = None
    timesteps: Ints | None = None
    noise_scale: float | None = None
    noise_scale_end: float | None = None
    noise_clip: float | None = None
    snap: Bool = False
    exact: Bool = False
    label: Bool = False
    progress: Bool = False
    trace: Bool = False

    def overrides(self) -> dict[str, Any]:
        """The recipe's constants that the request sets (None: not set)."""
        names = ("steps", "shift", "scheduler", "timesteps", "noise_scale", "noise_scale_end", "noise_clip")
        return {"guidance": self.guidance_scale, **{name: getattr(self, name) for name in names}}


class EditRequest(ImageRequest):
    """Fields of an edit; the pictures come apart from these. `layout` as in `drawing.layout`."""

    input_fidelity: Literal["high"] | None = None
    mask: None = None
    layout: Any = None
    keep_aspect: Bool = False


WHY = {
    "response_format": Text(
        "Pictures are returned in the answer; this server keeps no files.", "图片随响应返回，本服务不保存文件。"
    ),
    "background": Text("The model draws opaque pictures only.", "模型只能绘制不透明图片。"),
    "mask": Text("The model edits by instruction and takes no mask.", "模型按指令编辑，不支持蒙版。"),
    "input_fidelity": Text("References are always used at full fidelity.", "参考图始终以最高保真度使用。"),
    "style": Text("There are no styles; say it in the prompt.", "不支持 style，请写在提示词中。"),
    "quality": Text("There is one quality; steps and recipe decide it.", "只有一种质量，由 steps 和 recipe 决定。"),
}


def parse(kind: type[ImageRequest], values: Mapping[str, Any]) -> Any:
    """The request, or Refusal naming the first field at fault."""
    if not isinstance(values, Mapping):
        raise bad_value(None, Text("The body must be a JSON object.", "请求体应为 JSON 对象。"))
    given = {key: value for key, value in values.items() if value is not None}
    try:
        request = kind.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        name = str(first["loc"][0]) if first["loc"] else None
        if first["type"] == "extra_forbidden":
            raise bad_value(name, Text("There is no such field here.", "没有这个字段。"), "unknown_parameter") from None
        message = first["msg"].removeprefix("Value error, ")
        raise bad_value(name, WHY.get(name or "", Text(f"{message}.", f"{message}。"))) from None
    if request.stream and request.n > 1:
        raise bad_value("n", Text("A stream carries one picture.", "流式响应只能返回一张图片。"))
    if request.partial_images and not request.stream:
        raise bad_value("partial_images", Text("Previews need stream=true.", "预览需要 stream=true。"))
    return request


def bad_value(param: str | None, why: Text, code: str = "invalid_value") -> Refusal:
    """400 for a field."""
    name = param or "body"
    return Refusal(
        code,
        Text(f"{name} cannot be used.", f"无法使用 {name}。"),
        why,
        Text("Change it or leave it out.", "请修改或去掉它。"),
        param,
    )


def partial_steps(partial: int, steps: int) -> set[int]:
    """The steps (counted from 1) after which a preview is sent: spread evenly, the last step left out."""
    return {math.ceil((k + 1) * steps / (partial + 1)) for k in range(partial)} - {steps}
