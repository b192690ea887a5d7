"""Which tensors of a checkpoint a module of vLLM's tree holds, and whether it holds them."""

import json
from pathlib import Path
from typing import Any

import torch

from ascend_vl.verify import shards

_FUSED = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
}


def tensor_names(module: str, parameter: str) -> list[str]:
    """Checkpoint tensors that make up a parameter, in order of rows; `module` is its path in vLLM's model."""
    if module in ("language_model.logits_processor", "language_model.lm_head"):
        return [f"lm_head.{parameter}"]
    path = (
        module.replace("language_model.model.", "model.language_model.")
        if module.startswith("language")
        else f"model.{module}"
    )
    parent, _, leaf = path.rpartition(".")
    return [f"{parent}.{part}.{parameter}" for part in _FUSED.get(leaf, (leaf,))]


class CheckpointTensors:
    """Tensors of a directory by name."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        index = directory / "model.safetensors.index.json"
        if index.is_file():
            self.files = dict(json.loads(index.read_text(encoding="utf-8"))["weight_map"])
        else:
            from safetensors import safe_open

            name = "model.safetensors"
            with safe_open(directory / name, framework="pt") as file:
                self.files = dict.fromkeys(file.keys(), name)

    def get(self, name: str) -> torch.Tensor | None:
        """One tensor as stored, None when there is none of that name."""
        if name not in self.files:
            # A tied head is stored once, as the embedding.
            return self.get("model.language_model.embed_tokens.weight") if name == "lm_head.weight" else None
        from safetensors import safe_open

        with safe_open(self.directory / self.files[name], framework="pt") as file:
            tensor: torch.Tensor = file.get_tensor(name)
        return tensor

    def of_module(self, module: str, dtype: torch.dtype) -> dict[str, torch.Tensor]:
        """weight and bias of a module of vLLM's tree, in `dtype`; what the checkpoint lacks is left out."""
        found = {}
        for parameter in ("weight", "bias"):
            parts = [self.get(name) for name in tensor_names(module, parameter)]
            if all(part is not None for part in parts):
                found[parameter] = torch.cat([part for part in parts if part is not None]).to(dtype)
        return found


def compare_module(model: Any, module: str, tensors: CheckpointTensors) -> list[dict[str, Any]]:
    """Parameters at or below `module` that are not what the checkpoint says: {"tensors", "relative"}; empty if all are.

    Parameters that an engine packs out of sight are passed over; of split ones this rank's part is looked at.
    """
    wrong = []
    place = model.language_model.lm_head if module == "language_model.logits_processor" else model.get_submodule(module)
    for name, parameter in place.named_parameters():
        path, _, leaf = f"{module}.{name}".rpartition(".")
        parts = [tensors.get(stored) for stored in tensor_names(path, leaf)]
        if any(part is None for part in parts):
            continue
        whole = torch.cat([part for part in parts if part is not None]).double()
        owner = model.language_model.lm_head if path.endswith("logits_processor") else model.get_submodule(path)
        stored = shards.of_rank(owner, leaf, whole)
        held = parameter.detach().cpu()
        if held.ndim != stored.ndim or held.shape[1:] != stored.shape[1:] or held.shape[0] < stored.shape[0]:
            continue
        # Embeddings and heads are padded with rows that no token has.
        difference = (held[: stored.shape[0]].double() - stored.to(held.dtype).double()).norm() / (
            stored.norm() + 1e-30
        )
        if not float(difference) <= 1e-6:
            wrong.append({"tensors": tensor_names(path, leaf), "relative": float(difference)})
    return wrong


def compare_checkpoints(base: CheckpointTensors, other: CheckpointTensors, module: str) -> list[dict[str, Any]]:
    """The same between two checkpoint directories, for the tensors whose names begin with the module's."""
    prefixes = tuple(name.removesuffix(".weight") for name in tensor_names(module, "weight"))
    wrong: list[dict[str, Any]] = []
    for name in sorted(base.files):
        if not name.startswith(prefixes):
            continue
        ours, theirs = base.get(name), other.get(name)
        if ours is None or theirs is None or ours.shape != theirs.shape:
            wrong.append({"tensors": [name], "relative": None})
        elif not torch.equal(ours, theirs):
            difference = float((theirs.double() - ours.double()).norm() / (ours.double().norm() + 1e-30))
            wrong.append({"tensors": [name], "relative": difference})
    return wrong
