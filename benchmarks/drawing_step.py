"""One denoising step, ours against the reference's way, as a ratio within one run: `python benchmarks/drawing_step.py`.

Ours: the worker's forward pass on vLLM's layers with the prefix's keys and values kept. The other side: our own
implementation of the reference's way (whole sequence each step, one pass a guidance branch, dense mask) on
Transformers' layers. Both in float32 on the CPU, with guidance, first shown equal on the request that is timed, then
interleaved; least of n.
"""

import argparse
import gc
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "drawing"))

# (name, width, height, prompt tokens, least ratio that is asked for)
CASES = (("512x512, prompt 250", 512, 512, 250, 1.3), ("2048x2048, prompt 250", 2048, 2048, 250, 1.0))


def checkpoint(wide: bool) -> Path:
    """The tiny checkpoint, or a wider one (hidden 512), in which linear layers weigh more, as in the real model."""
    out = Path(tempfile.mkdtemp(prefix="drawing-step-"))
    subprocess.run([sys.executable, ROOT / "tests/data/oracle/make_tiny_checkpoint.py", "--out", out], check=True)
    if wide:
        widen(out)
    return out


def widen(directory: Path) -> None:
    """Make the random checkpoint again at hidden 512, intermediate 1536, 16 heads of 32 and 4 key heads; tower kept."""
    import torch
    from safetensors.torch import save_file
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    settings = json.loads((directory / "config.json").read_text())
    settings["text_config"] |= {"hidden_size": 512, "intermediate_size": 1536}
    settings["text_config"] |= {"num_attention_heads": 16, "num_key_value_heads": 4}
    settings["vision_config"]["out_hidden_size"] = 512
    (directory / "config.json").write_text(json.dumps(settings))
    with torch.device("meta"):
        model = Qwen3VLForConditionalGeneration(Qwen3VLConfig(**settings))
    shapes = {name: list(value.shape) for name, value in model.state_dict().items()}
    shapes |= {
        "model.x_embedder.proj1.weight": [128, 3072],
        "model.x_embedder.proj2.weight": [512, 128],
        "model.x_embedder.proj2.bias": [512],
        "model.t_embedder1.mlp.0.weight": [512, 256],
        "model.t_embedder1.mlp.0.bias": [512],
        "model.t_embedder1.mlp.2.weight": [512, 512],
        "model.t_embedder1.mlp.2.bias": [512],
        "model.final_layer2.linear.weight": [3072, 512],
        "model.final_layer2.linear.bias": [3072],
    }
    generator = torch.Generator().manual_seed(0)
    tensors = {}
    for name, shape in sorted(shapes.items()):
        noise = torch.randn(shape, generator=generator)
        norm = "norm" in name and name.endswith("weight")
        tensors[name] = 1 + 0.1 * noise if norm else noise / max(shape[-1], 1) ** 0.5
    for old in directory.glob("*.safetensors*"):
        old.unlink()
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tiny", action="store_true", help="hidden 64: latents and patch maps outweigh the decoder")
    parser.add_argument("--only", help="substring of a case's name")
    parser.add_argument("--out", type=Path, help="write the result as JSON")
    args = parser.parse_args()
    import bare

    from ascend_vl.drawing.reference import ReferenceDrawer

    directory = checkpoint(not args.tiny)
    drawer, worker = ReferenceDrawer(directory), bare.load(directory)
    worker.drawing_open()
    results = [
        measure(worker, drawer, *case, repeats=args.repeats)
        for case in CASES
        if args.only is None or args.only in case[0]
    ]
    for result in results:
        print(
            f"{result['case']}: step {result['ratio']:.2f}x as fast (asked {result['asked']}x), "
            f"largest relative difference {result['difference']:.1e}"
        )
    if args.out:
        args.out.write_text(json.dumps({"schema": 1, "hidden": 64 if args.tiny else 512, "results": results}, indent=2))
    return 0 if all(r["ratio"] >= r["asked"] and r["difference"] < 1e-4 for r in results) else 1


def measure(
    worker: Any, drawer: Any, name: str, width: int, height: int, tokens: int, asked: float, repeats: int
) -> dict[str, Any]:
    """Ratio of the times of one step, theirs over ours."""
    import torch

    from ascend_vl.drawing import references
    from ascend_vl.drawing.job import build_job, to_wire
    from ascend_vl.drawing.noise import first_noise
    from ascend_vl.drawing.recipes import Constants, DrawingConfig
    from ascend_vl.drawing.schedulers import make_scheduler
    from ascend_vl.drawing.velocity import guided_output, network_time

    constants = Constants()
    prepared, size = references.prepare([], (width, height), constants)
    recipe = DrawingConfig().recipe("full", 0, steps=repeats + 2)
    prompt = "x" * (tokens - 20)
    job = build_job(
        *(prompt, size, 1, recipe, prepared, drawer.tokenizer, drawer.image_processor, constants), trace_steps=(0,)
    )
    assert job.branches[0].prefix == tokens

    scheduler = make_scheduler(recipe, job.seed)
    latents = [first_noise(job.seed, width, height, recipe.noise_scale, 32)]

    @torch.no_grad()
    def theirs() -> list[torch.Tensor]:
        i, z = len(latents) - 1, latents[-1]
        timestep = scheduler.timesteps[i]
        clean = [drawer.predict(job, k, z, network_time(timestep), []) for k in range(2)]
        latents.append(scheduler.step(guided_output(clean, z, timestep, job.t_eps, recipe.guidance), z))
        return clean

    worker.drawing_begin("one", to_wire(job), ["one"])

    def ours() -> None:
        step = worker.drawing_advance("one", 1)["step"]
        while worker.drawing_advance("one", 10_000)["step"] == step:
            pass

    ours()  # vision, prefix and the first step
    arrays = worker._drawing().sessions["one"].arrays
    reference = theirs()
    difference = max(
        float((torch.from_numpy(arrays[f"s0_b{k}_x_pred"]) - reference[k]).abs().max() / reference[k].abs().max())
        for k in range(2)
    )
    del reference
    gc.collect()
    best = {"ours": float("inf"), "theirs": float("inf")}
    for _ in range(repeats):
        best["theirs"] = min(best["theirs"], timed(theirs))
        best["ours"] = min(best["ours"], timed(ours))
    worker.drawing_end("one")
    return {"case": name, "ratio": best["theirs"] / best["ours"], "asked": asked, "difference": difference}


def timed(work: Callable[[], Any]) -> float:
    """Processor seconds, so that other programs on the machine do not count."""
    started = time.process_time()
    work()
    return time.process_time() - started


if __name__ == "__main__":
    sys.exit(main())
