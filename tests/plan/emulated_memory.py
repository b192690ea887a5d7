"""Run inside a stack: what a model takes of the emulated chip's memory, as one JSON line (emulated).

usage: python emulated_memory.py MODEL
prints MEMORY {"weights": bytes, "allocated": bytes, "kv_tokens": n, "tower": [[visual tokens, bytes], ...]}
"""

import json
import os
import sys

MODEL = sys.argv[1]
SIDES = (256, 512)


def measure(model):  # type: ignore[no-untyped-def]
    """Bytes of the parameters, of all that is allocated, and the tower's peak above it for a picture of each size."""
    import numpy as np
    import torch
    from PIL import Image
    from transformers import AutoImageProcessor

    processor = AutoImageProcessor.from_pretrained(MODEL)
    weights = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    embed = getattr(model, "embed_multimodal", None) or model.get_multimodal_embeddings
    tower = []
    for side in SIDES:
        picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8))
        size = {"longest_edge": side * side, "shortest_edge": 32 * 32}
        inputs = processor(images=[picture], return_tensors="pt", size=size)
        pixels, grid = inputs["pixel_values"], inputs["image_grid_thw"]
        peak = 0
        with torch.inference_mode():
            for _ in range(2):  # the first call fills caches
                before = torch.npu.memory_allocated()
                torch.npu.reset_peak_memory_stats()
                made = embed(pixel_values=pixels.to("npu", model.visual.dtype), image_grid_thw=grid)
                peak = torch.npu.max_memory_allocated() - before
                del made
        tower.append([int(grid.prod()) // 4, peak])
    return {"weights": weights, "allocated": torch.npu.memory_allocated(), "tower": tower}


def main() -> None:
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    from vllm import LLM

    llm = LLM(
        MODEL,
        dtype="float16",
        load_format="dummy",
        enforce_eager=True,
        max_model_len=256,
        max_num_batched_tokens=256,
        max_num_seqs=2,
        gpu_memory_utilization=0.5,
        limit_mm_per_prompt={"image": 1, "video": 0},
    )
    found = llm.apply_model(measure)[0]
    cache = llm.llm_engine.vllm_config.cache_config
    found["kv_tokens"] = cache.num_gpu_blocks * cache.block_size
    print("MEMORY " + json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
