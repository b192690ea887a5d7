"""Run inside a stack, on an emulated chip: draw stored cases through the real vllm-ascend and write their traces.

usage: python emulated_draw.py MODEL OUT --dtype D [--cases t2i,edit,dev]; OUT gets CASE.npz, or CASE.json on failure;
open.json, what the worker says of itself; and queue.json, how many operators were still queued on the device after each
slice, as it is and with the wait left out.
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--dtype", required=True)
    parser.add_argument("--cases", default="t2i,edit,dev")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)

    from transformers import AutoImageProcessor, AutoTokenizer
    from vllm import LLM

    from ascend_vl.drawing import worker as workers
    from ascend_vl.models import names

    engine = LLM(
        str(args.model),
        dtype=args.dtype,
        enforce_eager=True,
        max_model_len=1024,
        max_num_batched_tokens=1024,
        max_num_seqs=2,
        gpu_memory_utilization=0.8,
        skip_mm_profiling=True,
        limit_mm_per_prompt={"image": 1, "video": 0},
        worker_extension_cls=names.WORKER_EXTENSION,
        hf_overrides={"architectures": [names.HIDREAM_O1], names.DRAWING_KEY: True},
    )
    (opened,) = engine.collective_rpc("drawing_open")
    (args.out / "open.json").write_text(json.dumps(opened))
    tokenizer, processor = AutoTokenizer.from_pretrained(args.model), AutoImageProcessor.from_pretrained(args.model)
    queued = [n for case in args.cases.split(",") for n in draw(engine, case, tokenizer, processor, args.out)]
    workers.wait_for = lambda device: 0.0
    unwaited = draw(engine, "t2i", tokenizer, processor, args.out / "unwaited")
    (args.out / "queue.json").write_text(json.dumps({"waited": queued, "unwaited": unwaited}))
    (left,) = engine.collective_rpc("drawing_status")
    (args.out / "left.json").write_text(json.dumps(left))


def draw(engine: Any, case: str, tokenizer: Any, processor: Any, out: Path) -> list[int]:
    """Operators still queued after each slice."""
    import oracle

    from ascend_vl.drawing.job import to_wire

    job = oracle.job(case, tokenizer, processor)
    left = []
    (status,) = engine.collective_rpc("drawing_begin", args=(case, to_wire(job), [case]))
    while status["state"] == "running":
        (status,) = engine.collective_rpc("drawing_advance", args=(case, 3))
        left.append(still_queued())
    if status["state"] == "done":
        (status,) = engine.collective_rpc("drawing_result", args=(case,))
    out.mkdir(exist_ok=True)
    if "trace" in status:
        (out / f"{case}.npz").write_bytes(status["trace"])
    else:
        (out / f"{case}.json").write_text(json.dumps(status))
    return left


def still_queued() -> int:
    from npu_emulator import build

    clock = build.load().clock()
    return int(clock["queued"] - clock["completed"])


if __name__ == "__main__":
    main()
