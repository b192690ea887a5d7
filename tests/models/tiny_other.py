"""Tiny random checkpoints of other architectures.  usage: tiny_other.py qwen2_5|moe OUT ORACLE_CHECKPOINT"""

import json
import shutil
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file

TEXT = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
}
TOKENS = {
    "image_token_id": 151655,
    "video_token_id": 151656,
    "vision_start_token_id": 151652,
    "vision_end_token_id": 151653,
}


def qwen2_5() -> transformers.PreTrainedModel:
    """Qwen2.5-VL: two layers, two vision blocks, one of them with windows."""
    vision = {
        "depth": 2,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_heads": 2,
        "out_hidden_size": 128,
        "patch_size": 14,
        "fullatt_block_indexes": [1],
    }
    rope = {"rope_type": "default", "mrope_section": [4, 6, 6]}
    config = transformers.Qwen2_5_VLConfig(
        text_config={**TEXT, "hidden_size": 128, "rope_theta": 1e6, "rope_scaling": rope},
        vision_config=vision,
        **TOKENS,
    )
    return transformers.Qwen2_5_VLForConditionalGeneration(config)


def moe() -> transformers.PreTrainedModel:
    """Qwen3-VL with four experts, two of them active."""
    vision = {
        "depth": 3,
        "hidden_size": 144,
        "intermediate_size": 96,
        "num_heads": 2,
        "out_hidden_size": 64,
        "patch_size": 16,
        "deepstack_visual_indexes": [0, 1],
        "num_position_embeddings": 2304,
    }
    text = {
        **TEXT,
        "head_dim": 32,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
        "decoder_sparse_step": 1,
        "norm_topk_prob": True,
        "rope_theta": 5e6,
        "rope_scaling": {"rope_type": "default", "mrope_section": [6, 5, 5], "mrope_interleaved": True},
    }
    config = transformers.Qwen3VLMoeConfig(text_config=text, vision_config=vision, **TOKENS)
    return transformers.Qwen3VLMoeForConditionalGeneration(config)


def as_published(file: Path) -> None:
    """Experts as in the published checkpoints, (experts, in, out); Transformers 5 writes (experts, out, in)."""
    tensors = load_file(file)
    for name in tensors:
        if ".mlp.experts." in name:
            tensors[name] = tensors[name].transpose(1, 2).contiguous()
    save_file(tensors, file, metadata={"format": "pt"})


def main(kind: str, out: Path, oracle: Path) -> None:
    torch.manual_seed(0)
    model = {"qwen2_5": qwen2_5, "moe": moe}[kind]()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter.data, 0.0, 0.1)
    model.to(torch.float32).save_pretrained(out)
    if kind == "moe":
        as_published(out / "model.safetensors")
    for file in [*oracle.glob("tokenizer*"), oracle / "chat_template.jinja", oracle / "preprocessor_config.json"]:
        shutil.copy(file, out / file.name)
    if kind == "qwen2_5":
        settings = json.loads((out / "preprocessor_config.json").read_text())
        settings |= {"patch_size": 14, "processor_class": "Qwen2_5_VLProcessor"}
        (out / "preprocessor_config.json").write_text(json.dumps(settings))
    else:
        shutil.copy(oracle / "video_preprocessor_config.json", out / "video_preprocessor_config.json")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
