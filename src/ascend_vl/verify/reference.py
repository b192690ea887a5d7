"""The reference: Transformers answers the cases greedily, in a process of its own. `python -m` this with a spec file.

The spec is JSON: {"model", "dtype", "cases", "out", "repeats", "tensors", "golden"}; the result is a RUN at `out`.
"""

import json
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from ascend_vl.verify import towers
from ascend_vl.verify.capture_images import image_hash, normalised
from ascend_vl.verify.cases import Case, read_cases
from ascend_vl.verify.runs import Answer, write_run

TOP_LOGPROBS = 20
_TOWER_STAGES = ("grid", "pixel_values", "tower")
PACKAGES = ("transformers", "torch", "torch-npu", "tokenizers", "pillow", "numpy")


class Reference:
    """A checkpoint in Transformers, on the CPU, at one dtype."""

    def __init__(self, model: Path, dtype: str) -> None:
        from transformers import AutoModelForImageTextToText, AutoProcessor

        self.processor: Any = AutoProcessor.from_pretrained(model)
        self.model: Any = _load(AutoModelForImageTextToText, model, getattr(torch, dtype)).eval()
        self.visual: Any = self.model.model.visual
        self.dtype = dtype
        eos = self.model.generation_config.eos_token_id
        self.eos = set(eos if isinstance(eos, list) else [eos])

    def inputs(self, case: Case) -> dict[str, torch.Tensor]:
        """Tensors of a case as the processor makes them from the normalised pictures."""
        parts: list[dict[str, Any]] = [{"type": "image", "image": normalised(path)} for path in case.images]
        messages = [{"role": "user", "content": [*parts, {"type": "text", "text": case.prompt}]}]
        return dict(
            self.processor.apply_chat_template(
                messages, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
            )
        )

    @torch.inference_mode()
    def generate(self, inputs: dict[str, torch.Tensor], max_tokens: int) -> tuple[list[int], torch.Tensor]:
        """(token ids with the final end token, logits (positions, vocabulary) float32) of greedy decoding."""
        output = self.model.generate(
            **inputs,
            do_sample=False,
            temperature=None,
            top_p=None,
            top_k=None,
            repetition_penalty=1.0,
            max_new_tokens=max_tokens,
            eos_token_id=sorted(self.eos),
            pad_token_id=min(self.eos),
            output_logits=True,
            return_dict_in_generate=True,
        )
        ids = output.sequences[0, inputs["input_ids"].shape[1] :].tolist()
        return ids, torch.stack([logits[0].float() for logits in output.logits])

    @torch.inference_mode()
    def forced(self, inputs: dict[str, torch.Tensor], token_ids: list[int]) -> torch.Tensor:
        """Logits (len(token_ids), vocabulary) float32 at every position of a given answer, in one pass."""
        logits = self.model(**followed(inputs, token_ids)).logits[0]
        return logits[-len(token_ids) - 1 : -1].float()

    def answer(self, case: Case, watch: towers.TowerWatch) -> tuple[Answer, list[dict[str, Any]]]:
        """The answer with its stages, and the pictures as the tower saw them."""
        started = time.monotonic()
        inputs = self.inputs(case)
        ids, logits = self.generate(inputs, case.max_tokens)
        pictures = [picture for call in watch.take() for picture in towers.by_image(call, watch.merge)]
        stages = {"prompt_ids": inputs["input_ids"][0].tolist()}
        if case.images:
            stages |= {"image_bytes": [image_hash(normalised(path)) for path in case.images], **towers.stages(pictures)}
        ended = bool(ids) and ids[-1] in self.eos
        answer = Answer(
            id=case.id,
            text=self.processor.decode(ids, skip_special_tokens=True),
            token_ids=ids,
            finish_reason="stop" if ended else "length",
            logprobs=best(logits),
            stages=stages,
            missing={} if case.images else dict.fromkeys(("image_bytes", *_TOWER_STAGES), "the case has no picture"),
            timings={"seconds": round(time.monotonic() - started, 4)},
        )
        if answer.logprobs is None:
            answer.missing["logprobs"] = "the logits are NaN"
        return answer, pictures


def followed(inputs: dict[str, torch.Tensor], token_ids: list[int]) -> dict[str, torch.Tensor]:
    """A prompt's tensors with more token ids behind it."""
    ids = torch.tensor([token_ids], dtype=torch.int64)
    whole = {**inputs, "input_ids": torch.cat([inputs["input_ids"], ids], 1)}
    whole["attention_mask"] = torch.ones_like(whole["input_ids"])
    if "mm_token_type_ids" in inputs:
        whole["mm_token_type_ids"] = torch.cat([inputs["mm_token_type_ids"], torch.zeros_like(ids)], 1)
    return whole


def _load(auto: Any, model: Path, dtype: torch.dtype) -> Any:
    from transformers.utils import logging

    bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        return auto.from_pretrained(model, dtype=dtype, attn_implementation="sdpa")
    except TypeError:  # Transformers 4.5x names it torch_dtype.
        return auto.from_pretrained(model, torch_dtype=dtype, attn_implementation="sdpa")
    finally:
        if bars:
            logging.enable_progress_bar()


def best(logits: torch.Tensor, count: int = TOP_LOGPROBS) -> list[list[tuple[int, float]]] | None:
    """The most likely tokens at each position of (positions, vocabulary): (token id, nats), best first.

    None when a logit is NaN: then there is no order.
    """
    if torch.isnan(logits).any():
        return None
    values, indices = torch.log_softmax(logits, -1).topk(min(count, logits.shape[-1]))
    pairs = zip(indices.tolist(), values.tolist(), strict=True)
    return [[(token, round(nats, 7)) for token, nats in zip(*pair, strict=True)] for pair in pairs]


def capture(spec: dict[str, Any]) -> None:
    """Answer the spec's cases and write the RUN."""
    started = time.monotonic()
    reference = Reference(Path(spec["model"]), spec["dtype"])
    load_seconds = time.monotonic() - started
    cases = read_cases(Path(spec["cases"]))
    out = Path(spec["out"])
    watch = towers.TowerWatch(reference.visual)
    answers = []
    for number, case in enumerate(cases, 1):
        answer, pictures = reference.answer(case, watch)
        for _ in range(spec.get("repeats", 0)):
            again, _unused = reference.answer(case, watch)
            answer.repeats.append({"text": again.text, "token_ids": again.token_ids})
        if spec.get("golden") and pictures:
            answer.stages["tower_golden"] = golden(reference.visual, pictures)
        if spec.get("forced"):
            _force(reference, case, answer, spec["forced"])
        if spec.get("tensors") and pictures:
            _save(out / "tensors" / f"{number:04d}.npz", pictures)
        answers.append(answer)
        print(json.dumps({"done": number, "of": len(cases)}), flush=True)
    info = {
        "dtype": spec["dtype"],
        "versions": versions(),
        "load_seconds": round(load_seconds, 2),
        "processor": type(reference.processor.image_processor).__name__,
        "sampling": {"do_sample": False, "temperature": 0, "top_p": 1, "repetition_penalty": 1.0},
        "generation_config": reference.model.generation_config.to_diff_dict(),
        **spec["info"],
    }
    write_run(out, info, [case.to_json() for case in cases], answers)


def golden(visual: Any, pictures: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Summaries of the tower run in float64 on the exact inputs and weights it has at its own dtype."""
    import copy

    exact = copy.deepcopy(visual)
    # The copy must not keep the watch of the original.
    for module in (exact, exact.patch_embed):
        vars(module).pop("forward", None)
    exact.double()
    results = []
    for index, picture in enumerate(pictures):
        grid = torch.tensor([picture["grid"]])
        with torch.inference_mode():
            features, deepstack = towers.split_output(exact, exact(picture["pixel_values"].double(), grid_thw=grid))
        named = {"features": features} | {f"deepstack {i}": layer for i, layer in enumerate(deepstack)}
        results += [{"name": f"image {index}: {name}", **towers.summarise(value)} for name, value in named.items()]
    return results


def _force(reference: Reference, case: Case, answer: Answer, given: dict[str, list[int]]) -> None:
    if token_ids := given.get(case.id):
        logits = reference.forced(reference.inputs(case), token_ids)
        listed = best(logits, 5)
        if listed is not None:
            answer.stages["forced"] = {"token_ids": token_ids, "logprobs": listed}


def _save(path: Path, pictures: list[dict[str, Any]]) -> None:
    import numpy as np

    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {
        f"image {i}: {name}": towers.array(value)
        for i, picture in enumerate(pictures)
        for name, value in [("pixel_values", picture["pixel_values"]), *picture["tensors"].items()]
    }
    np.savez(path, **arrays)


def versions() -> dict[str, str]:
    """Versions of the packages that take part, read now."""
    found = {"python": sys.version.split()[0]}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


if __name__ == "__main__":
    capture(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
