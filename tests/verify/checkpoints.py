"""Copies of a checkpoint with one planted fault each."""

import json
import shutil

import torch
from safetensors.torch import load_file, save_file


def clone(source, target):
    """A copy whose shards are links until somebody changes one."""
    target.mkdir()
    for path in source.iterdir():
        if path.suffix == ".safetensors":
            (target / path.name).symlink_to(path)
        else:
            shutil.copy(path, target / path.name)
    return target


def change_tensor(directory, name, change):
    """Rewrite the shard that holds `name` with change(tensor); None drops the tensor."""
    index_path = directory / "model.safetensors.index.json"
    index = json.loads(index_path.read_text())
    file = directory / index["weight_map"][name]
    tensors = load_file(file)
    changed = change(tensors.pop(name))
    if changed is None:
        del index["weight_map"][name]
        index_path.write_text(json.dumps(index))
    else:
        tensors[name] = changed.contiguous()
    file.unlink()
    save_file(tensors, file, metadata={"format": "pt"})


def change_json(directory, name, change):
    """Rewrite a JSON file with change(value)."""
    value = json.loads((directory / name).read_text())
    change(value)
    (directory / name).write_text(json.dumps(value))


def random_head(directory):
    """lm_head left as it was initialised."""
    generator = torch.Generator().manual_seed(3)
    change_tensor(directory, "lm_head.weight", lambda w: torch.randn(w.shape, generator=generator) * w.std())


def wrong_mrope_section(directory):
    """All rotary pairs turn with time, none with height or width."""
    change_json(directory, "config.json", lambda c: c["text_config"]["rope_scaling"].update(mrope_section=[16, 0, 0]))


def overflowing_mlp(directory):
    """One vision MLP whose first linear layer leaves float16's range."""
    change_tensor(directory, "model.visual.blocks.1.mlp.linear_fc1.weight", lambda w: w * 1e5)


def pixels_normalised_twice(directory):
    """A processor that takes (x - 0.5) / 0.5 of what it has normalised so already: (x - 0.75) / 0.25 at once."""
    change_json(directory, "preprocessor_config.json", lambda c: c.update(image_mean=[0.75] * 3, image_std=[0.25] * 3))
