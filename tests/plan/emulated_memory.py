"""Run inside a stack: what a model that sees and draws takes of the emulated chip, as one JSON line (emulated).

usage: python emulated_memory.py MODEL
prints MEMORY {"weights": bytes, "workspace": bytes, "allocated": bytes, "kv_tokens": n,
               "tower": [[visual tokens, bytes], ...], "drawing": [[target, references, [prefix, ...], bytes], ...]}
`allocated` is without the workspace for drawing, which has been given back by then.
"""

import json
import os
import sys
from typing import Any

MODEL = sys.argv[1]
SIDES = (256, 384, 512)
# (width, height, references of 512x512)
PICTURES = ((512, 512, 0), (768, 512, 0), (512, 512, 1))


def tower(model: Any) -> list[list[int]]:
    """The tower's peak above what was allocated, for a picture of each size."""
    import numpy as np
    import torch
    from PIL import Image
    from transformers import AutoImageProcessor

    processor = AutoImageProcessor.from_pretrained(MODEL)
    embed = getattr(model, "embed_multimodal", None) or model.get_multimodal_embeddings
    found = []
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
        found.append([int(grid.prod()) // 4, peak])
    return found


def measure(model: Any) -> dict[str, Any]:
    """Bytes of the parameters, of all that is allocated, and the tower's peaks."""
    import torch

    weights = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    return {"weights": weights, "allocated": torch.npu.memory_allocated(), "tower": tower(model)}


def drawing(engine: Any, width: int, height: int, references: int) -> list[Any]:
    """Peak of a drawing above what was allocated, with what the estimate depends on.

    Three steps: the scheduler keeps most from the second step on.
    """
    import numpy as np
    import torch
    from PIL import Image
    from transformers import AutoImageProcessor, AutoTokenizer

    from ascend_vl.drawing import references as prepared
    from ascend_vl.drawing.job import build_job, to_wire
    from ascend_vl.drawing.recipes import Constants, DrawingConfig

    tokenizer, processor = AutoTokenizer.from_pretrained(MODEL), AutoImageProcessor.from_pretrained(MODEL)
    noise = np.random.default_rng(1).integers(0, 256, (512, 512, 3), dtype=np.uint8)
    pictures, size = prepared.prepare([Image.fromarray(noise)] * references, (width, height), Constants())
    recipe = DrawingConfig().recipe("full", references, steps=3)
    job = build_job("a red square", size, 1, recipe, pictures, tokenizer, processor, Constants())
    name = f"{width}x{height}-{references}"
    before = torch.npu.memory_allocated()
    torch.npu.reset_peak_memory_stats()
    (status,) = engine.collective_rpc("drawing_begin", args=(name, to_wire(job), [name]))
    while status["state"] == "running":
        (status,) = engine.collective_rpc("drawing_advance", args=(name, 1))
    peak = torch.npu.max_memory_allocated() - before
    if status["state"] != "done":
        raise RuntimeError(json.dumps(status))
    engine.collective_rpc("drawing_result", args=(name,))
    return [job.target_tokens, job.reference_tokens, [branch.prefix for branch in job.branches], peak]


def main() -> None:
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    from vllm import LLM

    from ascend_vl.models import names

    engine = LLM(
        MODEL,
        dtype="float16",
        load_format="dummy",
        enforce_eager=True,
        max_model_len=256,
        max_num_batched_tokens=256,
        max_num_seqs=2,
        gpu_memory_utilization=0.5,
        limit_mm_per_prompt={"image": 1, "video": 0},
        worker_extension_cls=names.WORKER_EXTENSION,
        hf_overrides={"architectures": [names.HIDREAM_O1], names.DRAWING_KEY: True},
    )
    (opened,) = engine.collective_rpc("drawing_open")
    found = engine.apply_model(measure)[0] | {"workspace": opened["released"]}
    cache = engine.llm_engine.vllm_config.cache_config
    found["kv_tokens"] = cache.num_gpu_blocks * cache.block_size
    found["drawing"] = [drawing(engine, *picture) for picture in PICTURES]
    print("MEMORY " + json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
