"""Run inside a stack: answer one text prompt and two image prompts offline and print what came out as one JSON line.

usage: python serve_tiny.py MODEL [--tp N] [--graphs] [--max-model-len L] [--features FILE]
"""

import argparse
import json

import sys


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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--graphs", action="store_true")
    parser.add_argument("--dtype", default="float16")
    parser.add_argument("--max-model-len", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=12)
    parser.add_argument("--utilization", type=float, default=0.5)
    options = parser.parse_args()

    from vllm import LLM, SamplingParams

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
    sys.stdout.flush()
    print("ANSWERS " + json.dumps(answers), flush=True)
    del llm


if __name__ == "__main__":
    main()
