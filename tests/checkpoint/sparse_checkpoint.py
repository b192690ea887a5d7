"""Write checkpoints whose tensors are holes in sparse files: real headers, real sizes, no data."""

import json
from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path
from typing import Any

from ascend_vl.checkpoint.expected import LM_HEAD, expected_shapes, head_shapes
from ascend_vl.checkpoint.safetensors_header import DTYPE_BITS
from ascend_vl.checkpoint.shapes import text_shape, tie_flag, vision_shape

CONFIGS = Path(__file__).parent / "configs"
Stored = dict[str, tuple[str, tuple[int, ...]]]


def config_of(name: str) -> dict[str, Any]:
    """A published config.json by its file name in configs/."""
    return json.loads((CONFIGS / f"{name}.json").read_text())


def tiny_config(**text: Any) -> dict[str, Any]:
    """A dense config with two layers, in the published layout."""
    config = config_of("qwen3-vl-8b")
    config["text_config"] |= {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": 320,
        "rope_scaling": {"mrope_interleaved": True, "mrope_section": [4, 2, 2], "rope_type": "default"},
    } | text
    config["vision_config"] |= {
        "hidden_size": 72,
        "intermediate_size": 40,
        "depth": 3,
        "num_heads": 1,
        "out_hidden_size": 64,
        "num_position_embeddings": 16,
        "deepstack_visual_indexes": [0, 2],
    }
    return config


def stored(config: dict[str, Any], dtype: str = "BF16", head: bool = False) -> Stored:
    """Every tensor a sound checkpoint of `config` holds."""
    text = text_shape(config)
    shapes = expected_shapes(text, vision_shape(config))
    if not tie_flag(config):
        shapes[LM_HEAD] = (text.vocab, text.hidden)
    if head:
        shapes |= head_shapes(text.hidden)
    return {name: (dtype, shape) for name, shape in sorted(shapes.items())}


def write_shard(path: Path, tensors: Mapping[str, tuple[str, tuple[int, ...]]], cut: int = 0) -> None:
    """One safetensors file with a hole for data; `cut` bytes are missing at its end."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    position = 0
    for name, (dtype, shape) in tensors.items():
        end = position + prod(shape) * DTYPE_BITS[dtype] // 8
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [position, end]}
        position = end
    write_raw(path, json.dumps(header).encode(), position - cut)


def write_raw(path: Path, header: bytes, data_bytes: int) -> None:
    """A file with any header and `data_bytes` of hole behind it."""
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + data_bytes)


def split(tensors: Stored, shards: int) -> list[Stored]:
    """Consecutive parts of nearly equal bytes."""
    size = {name: prod(shape) * DTYPE_BITS[dtype] // 8 for name, (dtype, shape) in tensors.items()}
    total, done = sum(size.values()), 0
    parts: list[Stored] = [{} for _ in range(shards)]
    for name, entry in tensors.items():
        parts[min(shards - 1, done * shards // max(total, 1))][name] = entry
        done += size[name]
    return parts


def write_checkpoint(
    root: Path,
    config: dict[str, Any],
    tensors: Stored,
    shards: int = 1,
    beside: Iterable[str] = ("tokenizer", "processor"),
) -> Path:
    """A whole directory: config, shards, index (if several shards), tokenizer and processor files."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "config.json").write_text(json.dumps(config, indent=1))
    if shards == 1:
        write_shard(root / "model.safetensors", tensors)
    else:
        write_sharded(root, tensors, shards)
    if "tokenizer" in beside:
        write_tokenizer(root)
    if "processor" in beside:
        settings = {"patch_size": 16, "merge_size": 2, "temporal_patch_size": 2}
        (root / "preprocessor_config.json").write_text(json.dumps(settings))
    return root


def write_sharded(root: Path, tensors: Stored, shards: int) -> None:
    """Shards with the published names, and their index."""
    weight_map: dict[str, str] = {}
    for number, part in enumerate(split(tensors, shards), 1):
        name = f"model-{number:05d}-of-{shards:05d}.safetensors"
        write_shard(root / name, part)
        weight_map |= dict.fromkeys(part, name)
    total = sum(prod(shape) * DTYPE_BITS[dtype] // 8 for dtype, shape in tensors.values())
    write_index(root, weight_map, total)


def write_index(root: Path, weight_map: Mapping[str, str], total: int) -> None:
    """model.safetensors.index.json."""
    index = {"metadata": {"total_size": total}, "weight_map": dict(weight_map)}
    (root / "model.safetensors.index.json").write_text(json.dumps(index))


def write_tokenizer(root: Path) -> None:
    """Tokenizer files as far as an inspection looks at them, with HiDream-O1's drawing tokens."""
    tokens = ["<|boi_token|>", "<|bor_token|>", "<|eor_token|>", "<|bot_token|>", "<|tms_token|>"]
    added = {str(151669 + index): {"content": token} for index, token in enumerate(tokens)}
    settings = {"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": added, "chat_template": "{{ messages }}"}
    (root / "tokenizer_config.json").write_text(json.dumps(settings))
    (root / "tokenizer.json").write_text("{}")
