"""What Transformers says about the answers of `serve_tiny.py`: the same checkpoint, teacher-forced, in the served
dtype.

The peaked checkpoint amplifies float16: Transformers in float16 and in float32 differ by up to 1.1 in a log-probability
of the two-picture prompt. So answers are compared in one dtype; the vision tower is compared with float32 as well.
"""

from pathlib import Path
from typing import Any

import torch

# A position is decidable when the reference's first candidate leads by more than the two sides can differ in float16.
MARGIN = 0.15


def logits(model_folder: Path, answers: list[dict[str, Any]], dtype: torch.dtype) -> list[torch.Tensor]:
    """(tokens, vocabulary) float32 a prompt: the reference's logits for each answered position, given the answer so
    far.
    """
    from serve_tiny import prompts
    from transformers import AutoModelForImageTextToText, AutoProcessor

    processor = AutoProcessor.from_pretrained(model_folder)
    model = AutoModelForImageTextToText.from_pretrained(model_folder, dtype=dtype, attn_implementation="eager")
    found = []
    for prompt, answer in zip(prompts(), answers, strict=True):
        images = prompt.get("multi_modal_data", {}).get("image")
        inputs = dict(processor(text=[prompt["prompt"]], images=images, return_tensors="pt"))
        assert inputs["input_ids"][0].tolist() == answer["prompt_ids"], "the two sides read different prompts"
        ids = torch.tensor([answer["prompt_ids"] + answer["ids"]])
        inputs |= {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if "mm_token_type_ids" in inputs:
            types = inputs["mm_token_type_ids"]
            inputs["mm_token_type_ids"] = torch.nn.functional.pad(types, (0, ids.shape[1] - types.shape[1]))
        with torch.no_grad():
            every = model(**inputs).logits[0].float()
        found.append(every[len(answer["prompt_ids"]) - 1 : -1])
    return found


def judge(reference: list[torch.Tensor], answers: list[dict[str, Any]]) -> dict[str, Any]:
    """Decidable positions, those of them where the token differs, and the largest difference of a token's
    log-probability.
    """
    decidable = wrong = 0
    largest = 0.0
    for expected, answer in zip(reference, answers, strict=True):
        probabilities = torch.log_softmax(expected, -1)
        for row, token, seen in zip(probabilities, answer["ids"], answer["logprobs"], strict=True):
            top = row.topk(2)
            if top.values[0] - top.values[1] > MARGIN:
                decidable += 1
                wrong += int(token != int(top.indices[0]))
            largest = max([largest, *(abs(float(row[int(k)]) - v) for k, v in seen.items())])
    return {"decidable": decidable, "wrong": wrong, "largest": largest}


def features(model_folder: Path, dtype: torch.dtype) -> list[torch.Tensor]:
    """float32 (visual tokens, width * 4) for each of the two pictures: the merged output and the three deepstack
    levels.
    """
    from serve_tiny import pictures
    from transformers import AutoImageProcessor, AutoModelForImageTextToText

    processor = AutoImageProcessor.from_pretrained(model_folder)
    model = AutoModelForImageTextToText.from_pretrained(model_folder, dtype=dtype, attn_implementation="eager")
    made = []
    for picture in pictures():
        inputs = processor(images=[picture], return_tensors="pt")
        with torch.no_grad():
            out = model.model.visual(inputs["pixel_values"].to(dtype), grid_thw=inputs["image_grid_thw"])
        merged, levels = (out.pooler_output, out.deepstack_features) if hasattr(out, "pooler_output") else out
        made.append(torch.cat([merged, *levels], 1).float())
    return made


def distance(seen: torch.Tensor, expected: torch.Tensor) -> float:
    """Relative error in the Frobenius norm."""
    return float((seen - expected).norm() / expected.norm())
