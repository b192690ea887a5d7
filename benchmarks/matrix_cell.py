"""Runs inside one vllm-ascend stack on an emulated chip: every fault, without ascend-vl or with it.

usage: python -m benchmarks.matrix_cell MODEL --side stock|ours --rows none=,a=a,c=a+b

Prints one JSON line a row, beginning with CELL, and ends early when a fault takes the device along: whoever started it
goes on with the rest in another process. Started by `benchmarks.matrix`; everything here is emulated.
"""

import argparse
import contextlib
import gc
import json
import os
import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")

OURS = "AscendVLQwen3VLForConditionalGeneration"
# Above a block of the cache (128), so that the same prompt again hits the prefix cache.
PREFIX = "You are looking at pictures. Answer briefly and say what is there. " * 3
VISION = "<|vision_start|><|image_pad|><|vision_end|>"
TOKENS = 8
# The emulated faults of each row.
Rows = dict[str, frozenset[str]]
# The prompt that is asked again, the one with one picture.
AGAIN = 1


def set_faults(names: Iterable[str]) -> None:
    """Make this process's machine one with these faults, from now on."""
    from npu_emulator import build
    from npu_emulator.machine import VARIABLE

    names = set(names)
    machine = json.loads(os.environ[VARIABLE])
    os.environ[VARIABLE] = json.dumps(machine | {"faults": sorted(names)})
    # The device reads this one when it is made.
    build.load().set_upload_race("h2d-race" in names)


def picture(seed: int, width: int, height: int) -> Any:
    """A picture of coarse noise."""
    import numpy as np
    from PIL import Image

    noise = np.random.default_rng(seed).integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize((width, height), Image.Resampling.NEAREST)


def prompts(seed: int) -> list[dict[str, Any]]:
    """Text alone, one picture, two pictures of different sizes; `seed` makes pictures that no cache has seen."""
    one, two = picture(2 * seed, 96, 64), picture(2 * seed + 1, 64, 96)

    def chat(text: str) -> str:
        return f"<|im_start|>user\n{PREFIX}{text}<|im_end|>\n<|im_start|>assistant\n"

    return [
        {"prompt": chat("say hello")},
        {"prompt": chat(f"{VISION}what is this"), "multi_modal_data": {"image": [one]}},
        {"prompt": chat(f"{VISION}{VISION}compare"), "multi_modal_data": {"image": [one, two]}},
    ]


class Engine:
    """One offline engine in this process, with the features of its vision tower recorded."""

    def __init__(self, model: str, side: str, arguments: dict[str, Any]) -> None:
        from vllm import LLM

        overrides = {"architectures": [OURS]} if side == "ours" else {}
        options = {
            "dtype": "float16",
            "enforce_eager": True,
            "max_model_len": 512,
            # Small, because an engine that failed keeps what it had.
            "gpu_memory_utilization": 0.2,
            "num_gpu_blocks_override": 48,
            "limit_mm_per_prompt": {"image": 2, "video": 0},
            "max_num_seqs": 4,
            "seed": 0,
        } | arguments
        self.llm = LLM(model, hf_overrides=overrides, **options)
        self.features: list[Any] = []
        self.model = self.llm.apply_model(lambda made: made)[0]
        self.model.visual.register_forward_hook(self._keep)

    def _keep(self, _module: Any, _inputs: Any, output: Any) -> None:
        self.features.append(output.detach().cpu().float())

    def answer(self, seed: int, again: bool = False) -> dict[str, Any]:
        """Token ids and their margins for the prompts of `seed`, the tower's features; `again` asks one once more."""
        import torch
        from vllm import SamplingParams

        self.features.clear()
        sampling = SamplingParams(temperature=0.0, max_tokens=TOKENS, ignore_eos=True, logprobs=2)
        outputs = self.llm.generate(prompts(seed), sampling, use_tqdm=False)
        features = torch.cat(self.features) if self.features else None
        if again:
            outputs += self.llm.generate(prompts(seed)[AGAIN : AGAIN + 1], sampling, use_tqdm=False)
        answers = []
        for output in outputs:
            steps = output.outputs[0].logprobs
            ranked = [sorted((p.logprob for p in step.values()), reverse=True) for step in steps]
            answers.append(
                {"ids": list(output.outputs[0].token_ids), "margins": [round(r[0] - r[1], 4) for r in ranked]}
            )
        return {"answers": answers, "features": features}

    def close(self) -> None:
        """Give the device memory back."""
        import torch

        del self.llm, self.model
        gc.collect()
        npu: Any = vars(torch)["npu"]
        with contextlib.suppress(Exception):
            npu.empty_cache()


@contextlib.contextmanager
def counted() -> Iterator[Counter[str]]:
    """Counts calls of torch_npu's operators by name."""
    import torch  # noqa: F401 - before torch_npu, which it loads
    import torch_npu

    from npu_emulator.contract import OPERATORS

    counts: Counter[str] = Counter()
    originals = {name: getattr(torch_npu, name) for name in OPERATORS if hasattr(torch_npu, name)}

    def counting(name: str, original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            counts[name] += 1
            return original(*args, **kwargs)

        return call

    for name, original in originals.items():
        setattr(torch_npu, name, counting(name, original))
    try:
        yield counts
    finally:
        for name, original in originals.items():
            setattr(torch_npu, name, original)


def told(error: BaseException) -> str:
    """The line of an error that a user would search for."""
    text = "\n".join(part for part in (str(error), str(error.__cause__ or "")) if part) or type(error).__name__
    code, kernel = re.search(r"error code is \d+", text), re.search(r"kernelName=\w+", text)
    if code and kernel:
        return f"{code.group()}, {kernel.group()}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    marked = [line for line in lines if "error code" in line or "failed" in line or "dtype" in line]
    return (marked or lines)[0][:200]


def compare(found: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """How far features are off, and whether tokens agree wherever the choice was not close."""
    features, reference = found["features"], wanted["features"]
    off = float((features - reference).norm() / reference.norm()) if features.shape == reference.shape else None
    decided = differing = 0
    expected = wanted["answers"] + wanted["answers"][AGAIN : AGAIN + 1]
    for answer, right in zip(found["answers"], expected, strict=False):
        for token, other, margin in zip(answer["ids"], right["ids"], right["margins"], strict=True):
            if margin > 0.05:
                decided += 1
                differing += token != other
            if token != other:
                break
    return {"features_off": off, "decided_tokens": decided, "differing_tokens": differing}


def arguments_for(faults: Iterable[str]) -> dict[str, Any]:
    """What somebody who meets these faults would have asked for."""
    return {"dtype": "bfloat16"} if "no-bf16" in faults else {}


# Off where a run is only a yardstick, because 0.11 on 310P fails on a hit by itself.
PLAIN = {"enable_prefix_caching": False}


def run_stock(model: str, rows: Rows, say: Any) -> None:
    """The framework as it is: one engine, whose machine gets the faults of each row in turn."""
    engine: Engine | None = None
    for seed, (row, faults) in enumerate(rows.items(), 1):
        set_faults(())
        own = not faults.isdisjoint(("no-bf16", "repeat-crash"))
        if own and "no-bf16" not in faults and engine is not None:
            engine.close()
            engine = None
        if not own and engine is None:
            engine = Engine(model, "stock", PLAIN)
        with counted() as counts:
            result = attempt(in_its_own, model, seed, faults) if own else attempt(judged, engine, seed, faults)
        say({"fault": row, "side": "stock", "called": sorted(counts)} | result)
        if result["error"] and device_lost():
            return
        if result["error"] and engine is not None and not own:
            # A failed step leaves requests behind that 0.11 never gives up.
            set_faults(())
            engine.close()
            engine = None


def attempt(question: Callable[..., dict[str, Any]], *args: Any) -> dict[str, Any]:
    """What it returns, with the error that it raised, None without."""
    begin = time.monotonic()
    try:
        found = {"error": None} | question(*args)
    except Exception as error:
        found = {"error": told(error), "trace": traceback.format_exc()[-3000:]}
    return found | {"seconds": round(time.monotonic() - begin, 1)}


def in_its_own(model: str, seed: int, faults: frozenset[str]) -> dict[str, Any]:
    """An engine that is started with the faults; answering, also again, is all that is asked of it."""
    set_faults(faults)
    engine = Engine(model, "stock", arguments_for(faults))
    engine.answer(seed, again=True)
    engine.close()
    return {"features_off": 0.0}


def device_lost() -> bool:
    """Whether nothing works any more in this process."""
    import torch

    npu: Any = vars(torch)["npu"]
    try:
        npu.synchronize()
        torch.zeros(1, device="npu")
    except RuntimeError:
        return True
    return False


def judged(engine: Engine, seed: int, faults: frozenset[str]) -> dict[str, Any]:
    """The engine's answers with the faults against its answers without, on the same pictures."""
    set_faults(faults)
    found = engine.answer(seed)
    forget_pictures(engine)
    set_faults(())
    return compare(found, engine.answer(seed))


def forget_pictures(engine: Engine) -> None:
    """Empty the caches of prompts and of encoded pictures."""
    engine.llm.reset_prefix_cache()
    core = engine.llm.llm_engine.engine_core.engine_core
    manager = core.scheduler.encoder_cache_manager
    manager.reset() if hasattr(manager, "reset") else manager.__init__(manager.cache_size)
    core.model_executor.collective_rpc(_empty_encoder_cache)


def _empty_encoder_cache(worker: Any) -> None:
    worker.model_runner.encoder_cache.clear()


def run_ours(model: str, rows: Rows, say: Any) -> None:
    """With ascend-vl: probes, then an engine of our own architecture, for each row."""
    from ascend_vl import adaptations
    from ascend_vl.adaptations import engine as account
    from ascend_vl.adaptations.process_facts import process_facts

    set_faults(())
    reference = Engine(model, "stock", PLAIN)
    right = {seed: reference.answer(seed) for seed in range(len(rows))}
    as_stock = dispatched(reference, len(rows))
    reference.close()
    facts = process_facts()

    def answered(seed: int, faults: frozenset[str]) -> dict[str, Any]:
        findings = probe(model, facts, faults)
        account.forget()
        arguments = arguments_for(faults)
        config = {"dtype": "float16"} | arguments
        adaptations.apply("config", config, facts=facts, findings=findings)
        engine = Engine(model, "ours", arguments | config | ({} if faults else PLAIN))
        found = compare(engine.answer(seed, again=True), right[seed])
        if not faults:
            found["operators"] = difference(dispatched(engine, len(rows)), as_stock)
        engine.close()
        return found

    for seed, (row, faults) in enumerate(rows.items()):
        set_faults(faults)
        with methods_restored():
            result = attempt(answered, seed, faults)
        states = {line["id"]: line["state"] for line in adaptations.report()}
        say({"fault": row, "side": "ours", "states": states} | result)
        if result["error"] and device_lost():
            return
        set_faults(())


@contextlib.contextmanager
def methods_restored() -> Iterator[None]:
    """Afterwards tensors copy as before, so that one fault's cure is not there for the next."""
    import torch

    from ascend_vl.adaptations.seams.copies import METHODS

    kept = {name: vars(torch.Tensor).get(name) for name in METHODS}
    try:
        yield
    finally:
        for name, method in kept.items():
            if method is not None:
                setattr(torch.Tensor, name, method)
            elif name in vars(torch.Tensor):
                delattr(torch.Tensor, name)


def dispatched(engine: Engine, seed: int) -> list[str]:
    """Every operator that answering dispatches, in order, with the shapes of its tensors."""
    from torch.utils._python_dispatch import TorchDispatchMode

    operators: list[str] = []

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            shapes = [tuple(value.shape) for value in args if hasattr(value, "shape")]
            operators.append(f"{func} {shapes}")
            return func(*args, **(kwargs or {}))

    with Recorder():
        engine.answer(seed)
    return operators


def difference(ours: list[str], stock: list[str]) -> dict[str, Any]:
    """Whether two sequences of operators are the same, how long they are, and where they part."""
    parts = next((i for i, (a, b) in enumerate(zip(ours, stock, strict=False)) if a != b), min(len(ours), len(stock)))
    return {
        "same": ours == stock,
        "count": len(stock),
        "ours": len(ours),
        "first_difference": None if ours == stock else [parts, ours[parts : parts + 3], stock[parts : parts + 3]],
    }


def probe(model: str, facts: Any, faults: frozenset[str]) -> dict[str, Any]:
    """Ask the probes that decide here, in this process but for the one that ends it, and keep what they found.

    For `repeat-crash` what a failed repeat of `verify` records is recorded, where a record decides.
    """
    import pathlib

    from ascend_vl.adaptations.registry import by_id
    from ascend_vl.language import Text
    from ascend_vl.probes import cache, cached, of_config, record_repeat, runner
    from ascend_vl.probes.child import failure
    from ascend_vl.probes.registry import PROBES

    config = json.loads(pathlib.Path(model, "config.json").read_text())
    shapes = of_config(config, "float16")
    found = {}
    for name in runner.needed(facts):
        if name == "index-put":
            finding = runner.ask(name, shapes, anyway=True)
        else:
            noted: dict[str, Any] = {}
            try:
                finding = PROBES[name].run(shapes, noted.update)
            except Exception as error:
                finding = failure(error, noted)
        cache.store(PROBES[name], facts, shapes, finding)
        found[name] = finding
    if "repeat-crash" in faults and by_id("prefix-caching").applies(facts).on_unprobed is False:
        record_repeat(facts, shapes, True, Text("the second request failed", "第二次请求失败"))
    return found | cached(facts, shapes=shapes)


def main() -> int:
    """0 once every row was tried, or a device was lost."""
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("model")
    made.add_argument("--side", choices=("stock", "ours"), required=True)
    made.add_argument("--rows", required=True)
    options = made.parse_args()

    def say(result: dict[str, Any]) -> None:
        sys.stdout.write(f"\nCELL {json.dumps(result, ensure_ascii=False)}\n")
        sys.stdout.flush()

    pairs = (text.split("=") for text in options.rows.split(","))
    rows = {row: frozenset(filter(None, names.split("+"))) for row, names in pairs}
    (run_stock if options.side == "stock" else run_ours)(options.model, rows, say)
    return 0


if __name__ == "__main__":
    sys.exit(main())
