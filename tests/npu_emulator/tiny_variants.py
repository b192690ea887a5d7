"""Other tiny checkpoints for the emulated chips, all made from the peaked one of `tiny_checkpoint`."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

OTHER = Path(__file__).parents[1] / "models" / "tiny_other.py"
STATIC, DYNAMIC = ("q_proj", "k_proj", "v_proj", "o_proj"), ("gate_proj", "up_proj")
# Inputs of the quantised linears are normalised; a step of 1/16 covers eight deviations.
INPUT_SCALE, INPUT_OFFSET = 1 / 16, 3


def large_pictures(peak: Path, folder: Path) -> Path:
    """The same weights for pictures up to 1280x720, 3520 patches."""
    shutil.copytree(peak, folder)
    file = folder / "preprocessor_config.json"
    settings = json.loads(file.read_text())
    settings["size"] = {"longest_edge": 1280 * 720, "shortest_edge": 32 * 32}
    file.write_text(json.dumps(settings, indent=1))
    return folder


def moe(peak: Path, folder: Path) -> Path:
    """Qwen3-VL with four experts, random; choices far enough apart to be decidable in float16."""
    subprocess.run([sys.executable, str(OTHER), "moe", str(folder), str(peak)], check=True, capture_output=True)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    for name in tensors:
        if name.endswith("lm_head.weight"):
            tensors[name] *= 6
        if ".visual." in name and name.endswith("attn.qkv.weight"):
            tensors[name] *= 4
    save_file(tensors, file, metadata={"format": "pt"})
    settings = json.loads((folder / "config.json").read_text())
    # Where Transformers 4.57 looks for what Transformers 5 writes into rope_parameters.
    text = settings["text_config"]
    if "rope_parameters" in text:
        rope = dict(text.pop("rope_parameters"))
        text["rope_theta"] = rope.pop("rope_theta", 5e6)
        text["rope_scaling"] = rope
    # As published; Transformers 5 may write num_local_experts, which Transformers 4.57 does not read.
    text["num_experts"] = text.pop("num_local_experts", text.get("num_experts"))
    (folder / "config.json").write_text(json.dumps(settings, indent=1))
    return folder


def w8a8(peak: Path, folder: Path) -> tuple[Path, Path]:
    """ModelSlim's layout, and the same weights rounded but in floating point, for the reference.

    Attention is W8A8 (static), gate and up are W8A8_DYNAMIC, all else FLOAT, the whole vision tower with it.
    """
    quantised, rounded = folder / "w8a8", folder / "rounded"
    for made in (quantised, rounded):
        shutil.copytree(peak, made)
    description: dict[str, str] = {}
    for file in sorted(peak.glob("*.safetensors")):
        stored: dict[str, torch.Tensor] = {}
        plain = load_file(file)
        for name, tensor in plain.items():
            module = name.removesuffix(".weight")
            kind = {**dict.fromkeys(STATIC, "W8A8"), **dict.fromkeys(DYNAMIC, "W8A8_DYNAMIC")}.get(
                module.rpartition(".")[2], "FLOAT"
            )
            if kind == "FLOAT" or ".language_model." not in name:
                stored[name], description[name] = tensor, "FLOAT"
                continue
            parts = quantise(tensor, kind)
            stored |= {f"{module}.{leaf}": value for leaf, value in parts.items()}
            description |= dict.fromkeys((f"{module}.{leaf}" for leaf in parts), kind)
            plain[name] = parts["weight"].float() * parts["weight_scale"]
        save_file(stored, quantised / file.name, metadata={"format": "pt"})
        save_file(plain, rounded / file.name, metadata={"format": "pt"})
        index = quantised / "model.safetensors.index.json"
        listed = json.loads(index.read_text())
        listed["weight_map"] = {
            **{name: place for name, place in listed["weight_map"].items() if place != file.name},
            **dict.fromkeys(stored, file.name),
        }
        index.write_text(json.dumps(listed))
    whole = {"model_quant_type": "W8A8", "version": "1.0.0", "group_size": 0} | description
    (quantised / "quant_model_description.json").write_text(json.dumps(whole, indent=1))
    return quantised, rounded


def quantise(weight: torch.Tensor, kind: str) -> dict[str, torch.Tensor]:
    """The tensors that ModelSlim writes for one linear module: symmetric int8 per output channel.

    W8A8 has one scale and offset for its input; quant_bias takes the offset back out, and deq_scale (float32 bits in an
    int64, for float16 models) turns the int32 sum into the result.
    """
    scale = weight.abs().amax(1, keepdim=True) / 127
    steps = torch.round(weight / scale).to(torch.int8)
    parts = {"weight": steps, "weight_scale": scale, "weight_offset": torch.zeros_like(scale)}
    if kind == "W8A8":
        parts |= {
            "input_scale": torch.tensor([INPUT_SCALE]),
            "input_offset": torch.tensor([float(INPUT_OFFSET)]),
            "quant_bias": -INPUT_OFFSET * steps.to(torch.int32).sum(1, dtype=torch.int32),
            "deq_scale": (scale[:, 0] * INPUT_SCALE).contiguous().view(torch.int32).to(torch.int64),
        }
    return parts
