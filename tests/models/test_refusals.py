"""Checkpoints that must not be served are refused from their headers, by name, before any engine starts."""

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ascend_vl.errors import AscendVLError
from ascend_vl.models import upstream
from ascend_vl.serve import process

HEADED = "model.final_layer2.linear.bias"


def edit(folder: Path, change: Callable[[dict[str, Any]], None], tensor: str) -> None:
    """Change the header of the shard that holds `tensor`, and the index with it; the data keep their place."""
    index_file = folder / "model.safetensors.index.json"
    index = json.loads(index_file.read_text())
    shard = folder / index["weight_map"][tensor]
    data = shard.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    change(header)
    new = json.dumps(header).encode()
    shard.unlink()
    shard.write_bytes(struct.pack("<Q", len(new)) + new + data[8 + length :])
    names = [name for name in header if name != "__metadata__"]
    for name in [name for name, file in index["weight_map"].items() if file == shard.name and name not in names]:
        del index["weight_map"][name]
    index["weight_map"] |= dict.fromkeys(names, shard.name)
    index_file.unlink()
    index_file.write_text(json.dumps(index))


@pytest.fixture
def copy(tiny_hidream: Path, tmp_path: Path) -> Path:
    """A copy of the checkpoint whose unchanged files are hard links."""
    folder = tmp_path / "model"
    shutil.copytree(tiny_hidream, folder, copy_function=lambda source, target: Path(target).hardlink_to(source))
    return folder


def vllm_config(folder: Path, load_format: str = "auto") -> Any:
    return SimpleNamespace(
        model_config=SimpleNamespace(model=str(folder)), load_config=SimpleNamespace(load_format=load_format)
    )


def refusal(folder: Path) -> str:
    """Refused both by `serve`, before it starts anything, and by our model's constructor, with the same reason."""
    with pytest.raises(AscendVLError) as caught, process.running(folder):
        pass
    assert caught.value.exit_code == 1
    with pytest.raises(ValueError) as again:
        upstream.require_servable(vllm_config(folder))
    assert str(again.value) == str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "lm_head.weight",
        "model.language_model.layers.1.self_attn.k_proj.weight",
        "model.language_model.layers.2.mlp.up_proj.weight",
        HEADED,
    ],
)
def test_a_missing_tensor_is_named(copy: Path, name: str) -> None:
    edit(copy, lambda header: header.pop(name) and None, name)
    assert name in refusal(copy)


def test_a_tenth_head_tensor_is_named(copy: Path) -> None:
    def add(header: dict[str, Any]) -> None:
        end = max(info["data_offsets"][1] for name, info in header.items() if name != "__metadata__")
        header["model.final_layer3.linear.bias"] = {"dtype": "F32", "shape": [0], "data_offsets": [end, end]}

    edit(copy, add, HEADED)
    assert "model.final_layer3.linear.bias" in refusal(copy)


def test_a_truncated_shard_is_named(copy: Path) -> None:
    shard = copy / "model-00002-of-00003.safetensors"
    data = shard.read_bytes()
    shard.unlink()
    shard.write_bytes(data[:-100])
    assert shard.name in refusal(copy)


def test_a_sound_checkpoint_and_dummy_weights_pass(tiny_hidream: Path, copy: Path) -> None:
    upstream.require_servable(vllm_config(tiny_hidream))
    edit(copy, lambda header: header.pop(HEADED) and None, HEADED)
    upstream.require_servable(vllm_config(copy, "dummy"))
    upstream.require_servable(vllm_config(copy / "nowhere"))
