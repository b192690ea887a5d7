"""The shapes at which a model calls the operators that are probed. Importing this imports no torch."""

from dataclasses import asdict, dataclass, field
from typing import Any

# Patches of one 1280x720 picture (resized to 1280x704: 44 by 80), the size the published port failed at.
LARGE_PICTURE = 3520


@dataclass(frozen=True)
class Shapes:
    """What the tower and the merge of one model, on one rank, hand to operators.

    `vision_heads` on this rank, each `head_size` wide; `hidden` is the width of a text embedding, `merged` the width in
    which the extra levels of the tower are merged (hidden times levels). `dtype` is torch's name. `pictures` are
    lengths in patches that are tried together, mixed and large.
    """

    vision_heads: int = 16
    head_size: int = 72
    hidden: int = 4096
    merged: int = 12288
    dtype: str = "float16"
    pictures: tuple[int, ...] = field(default=(64, 24, 64, 480))

    def to_json(self) -> dict[str, Any]:
        """As plain values, for the cache and for the child."""
        return asdict(self) | {"pictures": list(self.pictures)}


def from_json(value: dict[str, Any]) -> Shapes:
    """The inverse of `Shapes.to_json`."""
    return Shapes(**{**value, "pictures": tuple(value["pictures"])})


def of_config(config: dict[str, Any], dtype: str, tensor_parallel: int = 1) -> Shapes:
    """Shapes from a checkpoint's config.json and the number of ranks that share its heads.

    Raises KeyError for a config without a Qwen3-VL vision part.
    """
    vision, text = config["vision_config"], config.get("text_config", config)
    levels = len(vision.get("deepstack_visual_indexes") or ())
    return Shapes(
        vision_heads=max(1, vision["num_heads"] // tensor_parallel),
        head_size=vision["hidden_size"] // vision["num_heads"],
        hidden=text["hidden_size"],
        merged=text["hidden_size"] * max(1, levels),
        dtype=dtype,
    )


def of_model(model: Any) -> Shapes:
    """The same from a model object in a worker. Raises AttributeError for a model without a Qwen3-VL tower."""
    attention = model.visual.blocks[0].attn
    levels = len(model.visual.deepstack_visual_indexes)
    hidden = model.config.text_config.hidden_size
    return Shapes(
        vision_heads=attention.num_attention_heads_per_partition,
        head_size=attention.hidden_size_per_attention_head,
        hidden=hidden,
        merged=hidden * max(1, levels),
        dtype=str(model.visual.dtype).removeprefix("torch."),
    )
