"""Run inside a stack: answer one text prompt and two image prompts offline and print what came out as one JSON line.

usage: python serve_tiny.py MODEL [--tp N] [--graphs] [--max-model-len L] [--features FILE.npz] [--plant-seq-len]

`--features` also writes what the vision tower makes of the pictures: each alone, then both in one call. After its
answers `--plant-seq-len` makes a mistake, asks about a picture once more, and prints the error as PLANTED.
"""

import argparse
import json
import os
import sys

import numpy

MODEL = ""


def pictures():  # type: ignore[no-untyped-def]
    """Two different pictures, 96x64 and 64x96."""
    import numpy as np
    from PIL import Image

    made = []
    for seed, (width, height) in enumerate(((96, 64), (64, 96))):
        noise = np.random.default_rng(seed).integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8)
        made.append(Image.fromarray(noise).resize((width, height), Image.Resampling.NEAREST))
    return made


def prompts():  # type: ignore[no-untyped-def]
    """A text prompt, a prompt with one picture, a prompt with two."""
    one, two = pictures()
    vision = "<|vision_start|><|image_pad|><|vision_end|>"
    return [
        {"prompt": "<|im_start|>user\nsay hello<|im_end|>\n<|im_start|>assistant\n"},
        {
            "prompt": f"<|im_start|>user\n{vision}what is this<|im_end|>\n<|im_start|>assistant\n",
            "multi_modal_data": {"image": [one]},
        },
        {
            "prompt": f"<|im_start|>user\n{vision}{vision}compare<|im_end|>\n<|im_start|>assistant\n",
            "multi_modal_data": {"image": [one, two]},
        },
    ]


def tower_features(model):  # type: ignore[no-untyped-def]
    """float32 arrays (visual tokens, width * 4): picture 1, picture 2, and the same two from one call."""
    import torch
    from transformers import AutoImageProcessor

    processor = AutoImageProcessor.from_pretrained(MODEL)
    inputs = processor(images=pictures(), return_tensors="pt")
    pixels, grids = inputs["pixel_values"], inputs["image_grid_thw"]
    border = int(grids[0].prod())
    embed = getattr(model, "embed_multimodal", None) or model.get_multimodal_embeddings
    made = []
    with torch.inference_mode():
        for rows, which in ((pixels[:border], grids[:1]), (pixels[border:], grids[1:]), (pixels, grids)):
            made += list(embed(pixel_values=rows.to("npu", model.visual.dtype), image_grid_thw=which))
    return [features.float().cpu().numpy() for features in made]


def leave_seq_len_on_the_device() -> None:
    """What a careless plugin would do to the vision attention of 310P."""
    import torch_npu

    exact = torch_npu._npu_flash_attention_unpad
    torch_npu._npu_flash_attention_unpad = lambda **given: exact(**{**given, "seq_len": given["seq_len"].npu()})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--graphs", action="store_true")
    parser.add_argument("--dtype", default="float16")
    parser.add_argument("--max-model-len", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=12)
    parser.add_argument("--utilization", type=float, default=0.5)
    parser.add_argument("--features")
    parser.add_argument("--plant-seq-len", action="store_true", help="a planted mistake: the lengths stay on the NPU")
    options = parser.parse_args()

    if options.tp == 1:  # one process: its imports are most of the time
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    from vllm import LLM, SamplingParams

    global MODEL
    MODEL = options.model
    settings = {}
    if options.graphs:
        settings["compilation_config"] = {"cudagraph_mode": "PIECEWISE", "cudagraph_capture_sizes": [1, 2, 4]}
    llm = LLM(
        options.model,
        dtype=options.dtype,
        enforce_eager=not options.graphs,
        tensor_parallel_size=options.tp,
        max_model_len=options.max_model_len,
        gpu_memory_utilization=options.utilization,
        limit_mm_per_prompt={"image": 2, "video": 0},
        max_num_seqs=4,
        seed=0,
        **settings,
    )
    sampling = SamplingParams(temperature=0.0, max_tokens=options.tokens, ignore_eos=True, logprobs=5)
    answers = []
    for output in llm.generate(prompts(), sampling, use_tqdm=False):
        first = output.outputs[0]
        answers.append(
            {
                "prompt_ids": list(output.prompt_token_ids),
                "ids": list(first.token_ids),
                "logprobs": [{str(k): v.logprob for k, v in step.items()} for step in first.logprobs],
            }
        )
    if options.features:
        numpy.savez(options.features, *llm.apply_model(tower_features)[0])
    sys.stdout.flush()
    print("ANSWERS " + json.dumps(answers), flush=True)
    if options.plant_seq_len:
        leave_seq_len_on_the_device()
        unseen = pictures()[1].rotate(180)  # no cache has what the tower made of it
        try:
            llm.generate({**prompts()[1], "multi_modal_data": {"image": [unseen]}}, sampling, use_tqdm=False)
        except Exception as error:
            print(f"PLANTED {error}", flush=True)
    del llm


if __name__ == "__main__":
    main()
