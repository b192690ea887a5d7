"""The numbers of a Qwen3-VL config.json: the language model's and the vision tower's shape."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# What Transformers fills in for a key the file leaves out (Qwen3VLTextConfig, Qwen3VLVisionConfig), where that value is
# the one every published model has. Widths and depths have no default here: a file without them is incomplete.
_TEXT_DEFAULTS = {"vocab_size": 151936, "head_dim": 128}
_VISION_DEFAULTS = {
    "in_channels": 3,
    "patch_size": 16,
    "temporal_patch_size": 2,
    "spatial_merge_size": 2,
    "num_position_embeddings": 2304,
}
# A config that claims more than this is broken, not big; bounds what a mangled file can make us build.
_LARGEST = {"num_hidden_layers": 1000, "depth": 1000, "num_experts": 4096}
_ANY_LARGEST = 2**24


class ConfigError(ValueError):
    """A number in config.json that is missing or cannot be; `key` is its path in the file."""

    def __init__(self, key: str, found: Any) -> None:
        super().__init__(key, found)
        self.key, self.found = key, found


@dataclass(frozen=True)
class TextShape:
    """The language model. `rope` keeps what config.json says under rope_scaling or rope_parameters, plus `theta`."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    max_positions: int
    attention_bias: bool
    tied: bool
    rope: Mapping[str, Any]
    experts: int = 0
    experts_per_token: int = 0
    moe_intermediate: int = 0
    sparse_step: int = 1
    dense_layers: tuple[int, ...] = ()

    def is_sparse(self, layer: int) -> bool:
        """Whether `layer` is a mixture of experts (rule of Qwen3VLMoeTextDecoderLayer)."""
        return self.experts > 0 and layer not in self.dense_layers and (layer + 1) % self.sparse_step == 0


@dataclass(frozen=True)
class VisionShape:
    """The vision tower. `patch` and `merge` are edges, in pixels and in patches."""

    hidden: int
    intermediate: int
    depth: int
    heads: int
    head_dim: int
    patch: int
    temporal_patch: int
    merge: int
    channels: int
    out_hidden: int
    position_embeddings: int
    deepstack: tuple[int, ...]


def text_shape(config: Mapping[str, Any]) -> TextShape:
    """The language model's shape. Raises ConfigError naming the key that is missing or impossible."""
    text = _section(config, "text_config")
    number = _reader(text, "text_config", _TEXT_DEFAULTS)
    moe = str(config.get("model_type", "")).endswith("_moe")
    heads, hidden = number("num_attention_heads"), number("hidden_size")
    return TextShape(
        hidden=hidden,
        intermediate=number("intermediate_size"),
        layers=number("num_hidden_layers"),
        heads=heads,
        kv_heads=heads if text.get("num_key_value_heads") is None else number("num_key_value_heads"),
        head_dim=number("head_dim") if text.get("head_dim") or not moe else hidden // heads,
        vocab=number("vocab_size"),
        max_positions=number("max_position_embeddings"),
        attention_bias=text.get("attention_bias") is True,
        tied=tie_flag(config),
        rope=_rope(text),
        experts=_experts(text) if moe else 0,
        experts_per_token=number("num_experts_per_tok") if moe else 0,
        moe_intermediate=number("moe_intermediate_size") if moe else 0,
        sparse_step=_or_one(text.get("decoder_sparse_step")),
        dense_layers=_indexes(text.get("mlp_only_layers"), "text_config.mlp_only_layers"),
    )


def vision_shape(config: Mapping[str, Any]) -> VisionShape:
    """The vision tower's shape. Raises ConfigError naming the key that is missing or impossible."""
    vision = _section(config, "vision_config")
    number = _reader(vision, "vision_config", _VISION_DEFAULTS)
    hidden, heads = number("hidden_size"), number("num_heads")
    return VisionShape(
        hidden=hidden,
        intermediate=number("intermediate_size"),
        depth=number("depth"),
        heads=heads,
        head_dim=hidden // heads,
        patch=number("patch_size"),
        temporal_patch=number("temporal_patch_size"),
        merge=number("spatial_merge_size"),
        channels=number("in_channels"),
        out_hidden=number("out_hidden_size"),
        position_embeddings=number("num_position_embeddings"),
        deepstack=_indexes(
            vision.get("deepstack_visual_indexes", [8, 16, 24]), "vision_config.deepstack_visual_indexes"
        ),
    )


def tie_flag(config: Mapping[str, Any]) -> bool:
    """Whether `lm_head` is the embedding table: the top-level flag, else the text section's, else False."""
    text = config.get("text_config")
    for section in (config, text if isinstance(text, dict) else {}):
        if isinstance(section.get("tie_word_embeddings"), bool):
            return bool(section["tie_word_embeddings"])
    return False


def _section(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = config.get(name)
    if not isinstance(section, dict):
        raise ConfigError(name, section)
    return section


def _reader(section: Mapping[str, Any], name: str, defaults: Mapping[str, int]) -> Any:
    def number(key: str) -> int:
        value = section.get(key, defaults.get(key))
        if type(value) is not int or not 0 < value <= _LARGEST.get(key, _ANY_LARGEST):
            raise ConfigError(f"{name}.{key}", value)
        return value

    return number


def _experts(text: Mapping[str, Any]) -> int:
    key = "num_experts" if "num_experts" in text else "num_local_experts"
    value = text.get(key)
    if type(value) is not int or not 0 < value <= _LARGEST["num_experts"]:
        raise ConfigError(f"text_config.{key}", value)
    return value


def _or_one(value: Any) -> int:
    return value if type(value) is int and value > 0 else 1


def _indexes(value: Any, key: str) -> tuple[int, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > 1000 or not all(type(item) is int and item >= 0 for item in value):
        raise ConfigError(key, value)
    return tuple(value)


def _rope(text: Mapping[str, Any]) -> dict[str, Any]:
    """Both spellings as one: Transformers 4 has rope_theta and rope_scaling, Transformers 5 has rope_parameters."""
    found: dict[str, Any] = {}
    for key in ("rope_scaling", "rope_parameters"):
        if isinstance(text.get(key), dict):
            found |= text[key]
    theta = found.pop("rope_theta", text.get("rope_theta"))
    return {"theta": theta} | found
