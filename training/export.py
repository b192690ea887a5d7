"""Write a run's weights as a checkpoint directory: `python -m training.export --run DIR/run.pt --out DIR`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from . import tokenizer
from .batches import FIX_POINT, NOISE_SCALE, STEPS, BatchConfig
from .model import DemoModel, ModelConfig
from .tokenizer import token
from .train import Recipe

MAX_POSITIONS = 8192
NOISE_CLIP = 2.5


def config_json(c: ModelConfig, dtype: str) -> dict:
    v, t = c.vision, c.text
    rope = {"mrope_interleaved": True, "mrope_section": list(t.mrope_section), "rope_type": "default"}
    return {
        "architectures": ["Qwen3VLForConditionalGeneration"],
        "dtype": dtype,
        "hidream_o1": {
            "model_type": "dev",
            "recipe": "dev",
            "scheduler": "flash",
            "steps": len(STEPS),
            "timesteps": list(STEPS),
            "shift": 1.0,
            "guidance": 0.0,
            "noise_scale": NOISE_SCALE,
            "noise_clip": NOISE_CLIP,
            "t_eps": 0.001,
            "patch_size": c.pixel_patch,
            "fix_point": FIX_POINT,
            "boi_token_id": token("<|boi_token|>"),
            "tms_token_id": token("<|tms_token|>"),
            "resolutions": [[128, 128]],
            "tasks": ["image_generation"],
        },
        "image_token_id": token("<|image_pad|>"),
        "model_type": "qwen3_vl",
        "text_config": {
            "attention_bias": False,
            "attention_dropout": 0.0,
            "bos_token_id": token("<|endoftext|>"),
            "dtype": dtype,
            "eos_token_id": token("<|im_end|>"),
            "head_dim": t.head_dim,
            "hidden_act": "silu",
            "hidden_size": t.hidden_size,
            "initializer_range": 0.02,
            "intermediate_size": t.intermediate_size,
            "max_position_embeddings": MAX_POSITIONS,
            "model_type": "qwen3_vl_text",
            "num_attention_heads": t.num_attention_heads,
            "num_hidden_layers": t.num_hidden_layers,
            "num_key_value_heads": t.num_key_value_heads,
            "rms_norm_eps": t.rms_norm_eps,
            "rope_scaling": rope,
            "rope_theta": t.rope_theta,
            "use_cache": True,
            "vocab_size": t.vocab_size,
        },
        "tie_word_embeddings": False,
        "transformers_version": "4.57.1",
        "video_token_id": token("<|video_pad|>"),
        "vision_config": {
            "deepstack_visual_indexes": list(v.deepstack_visual_indexes),
            "depth": v.depth,
            "hidden_act": "gelu_pytorch_tanh",
            "hidden_size": v.hidden_size,
            "in_channels": 3,
            "initializer_range": 0.02,
            "intermediate_size": v.intermediate_size,
            "model_type": "qwen3_vl",
            "num_heads": v.num_heads,
            "num_position_embeddings": v.num_position_embeddings,
            "out_hidden_size": t.hidden_size,
            "patch_size": v.patch_size,
            "spatial_merge_size": v.spatial_merge_size,
            "temporal_patch_size": v.temporal_patch_size,
        },
        "vision_end_token_id": token("<|vision_end|>"),
        "vision_start_token_id": token("<|vision_start|>"),
    }


def processor_files() -> dict[str, dict]:
    half = [0.5, 0.5, 0.5]
    shared = {
        "image_mean": half,
        "image_std": half,
        "merge_size": 2,
        "patch_size": 16,
        "processor_class": "Qwen3VLProcessor",
        "temporal_patch_size": 2,
    }
    return {
        "preprocessor_config.json": {
            **shared,
            "image_processor_type": "Qwen2VLImageProcessorFast",
            "size": {"longest_edge": 192 * 192, "shortest_edge": 128 * 128},
        },
        "video_preprocessor_config.json": {
            **shared,
            "do_convert_rgb": True,
            "do_normalize": True,
            "do_rescale": True,
            "do_resize": True,
            "do_sample_frames": True,
            "fps": 2,
            "max_frames": 16,
            "min_frames": 4,
            "resample": 3,
            "rescale_factor": 1 / 255,
            "size": {"longest_edge": 16 * 192 * 192, "shortest_edge": 4 * 128 * 128},
            "video_processor_type": "Qwen3VLVideoProcessor",
        },
        "generation_config.json": {
            "bos_token_id": token("<|endoftext|>"),
            "do_sample": False,
            "eos_token_id": [token("<|im_end|>"), token("<|endoftext|>")],
            "pad_token_id": token("<|endoftext|>"),
            "transformers_version": "4.57.1",
        },
    }


def write_json(path: Path, value: dict) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def export(net: DemoModel, out: Path, dtype: torch.dtype = torch.bfloat16) -> None:
    out.mkdir(parents=True, exist_ok=True)
    tensors = {name: p.detach().to(dtype).contiguous() for name, p in net.state_dict().items()}
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    (out / "model.safetensors").chmod(0o644)
    write_json(out / "config.json", config_json(net.config, str(dtype).removeprefix("torch.")))
    for name, value in processor_files().items():
        write_json(out / name, value)
    tokenizer.save(out)


def pictures_a_step(c: BatchConfig) -> float:
    return c.two_image_steps * 2 * c.two_image_prompts + (1 - c.two_image_steps) * c.images + c.extra_images


def record(state: dict, parameters: int) -> dict:
    """What the model card says about the training."""
    recipe, step = Recipe(), state["step"]
    early = min(step, recipe.late_from)
    parts = ((early, recipe.batch), (step - early, recipe.late_batch))
    return {
        "images_seen": round(sum(steps * pictures_a_step(c) for steps, c in parts)),
        "drawings_seen": sum(steps * c.drawings for steps, c in parts),
        "parameters": parameters,
        "recipe": state["recipe"],
        "seconds": round(state["seconds"]),
        "seed": state["seed"],
        "steps": state["step"],
        "torch": torch.__version__,
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="training.export", description=__doc__)
    parser.add_argument("--run", type=Path, required=True, help="run.pt of the training run")
    parser.add_argument("--out", type=Path, required=True, help="checkpoint directory to write")
    parser.add_argument("--weights", choices=("last", "average"), default="last")
    args = parser.parse_args(argv)
    state = torch.load(args.run, weights_only=True)
    net = DemoModel()
    last = {name[4:]: value for name, value in state["trainee"].items() if name.startswith("net.")}
    net.load_state_dict(state["average"] if args.weights == "average" else last)
    export(net, args.out)
    known = record(state, sum(p.numel() for p in net.parameters()))
    write_json(args.out / "training.json", {**known, "weights": args.weights})
    weights = args.out / "model.safetensors"
    print(f"{args.out}: {sum(p.numel() for p in net.parameters()):,} parameters, {weights.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
