"""Run models in one vLLM process and print what they computed, as JSON.  usage: engine_run.py SPEC_JSON

The spec is a list of {"name", "model", "overrides"}; for each the output has a SHA-256 of every logits tensor, the
token ids, the class, the parameters and the tensors read; or the error. Run with ASCEND_VL=off for the stock vLLM.
"""

import hashlib
import json
import os
import sys
from typing import Any

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
MAX_TOKENS = 4


def describe(run: dict[str, Any]) -> dict[str, Any]:
    from PIL import Image
    from vllm import LLM, SamplingParams

    llm = LLM(
        model=run["model"],
        hf_overrides=run.get("overrides", {}),
        dtype="float32",
        enforce_eager=True,
        distributed_executor_backend="uni",
        max_model_len=512,
        max_num_seqs=1,
        max_num_batched_tokens=512,
        kv_cache_memory_bytes=2**26,
        limit_mm_per_prompt={"image": {"count": 1, "width": 64, "height": 64}, "video": 0},
        seed=0,
    )
    model = llm.llm_engine.model_executor.driver_worker.worker.model_runner.get_model()
    hashes: list[str] = []
    compute_logits = model.compute_logits

    def watched(hidden_states: Any) -> Any:
        logits = compute_logits(hidden_states)
        hashes.append(hashlib.sha256(logits.float().numpy().tobytes()).hexdigest())
        return logits

    model.compute_logits = watched
    sampling = SamplingParams(temperature=0, max_tokens=MAX_TOKENS, ignore_eos=True)
    prompts: list[Any] = [{"prompt": "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"}]
    picture = Image.linear_gradient("L").convert("RGB").resize((96, 64))
    see = "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>?<|im_end|>\n<|im_start|>assistant\n"
    prompts.append({"prompt": see, "multi_modal_data": {"image": picture}})
    answers = [llm.generate(prompt, sampling, use_tqdm=False)[0].outputs[0] for prompt in prompts]
    found = {
        "class": f"{type(model).__module__}.{type(model).__qualname__}",
        "tokens": [list(answer.token_ids) for answer in answers],
        "logits": hashes,
        "parameters": sorted(name for name, _ in model.named_parameters()),
        "head_dtypes": sorted(
            {
                str(p.dtype)
                for n, p in model.named_parameters()
                if n.startswith(("x_embedder", "t_embed", "final_layer2"))
            }
        ),
    }
    llm.llm_engine.engine_core.shutdown()
    return found


def reads(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Every run's description, with the names of the tensors that were read from disk."""
    import vllm.model_executor.model_loader.weight_utils as weight_utils
    from vllm.distributed import cleanup_dist_env_and_memory

    real = weight_utils.safe_open
    read: list[str] = []

    class Counting:
        def __init__(self, *given: Any, **named: Any) -> None:
            self.file = real(*given, **named)

        def __enter__(self) -> "Counting":
            self.file = self.file.__enter__()
            return self

        def __exit__(self, *error: object) -> Any:
            return self.file.__exit__(*error)

        def keys(self) -> Any:
            return self.file.keys()

        def get_tensor(self, name: str) -> Any:
            read.append(name)
            return self.file.get_tensor(name)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

    weight_utils.safe_open = Counting  # type: ignore[misc, assignment]
    found: dict[str, Any] = {}
    for run in runs:
        read.clear()
        try:
            found[run["name"]] = {**describe(run), "read": sorted(read)}
        except Exception as error:
            found[run["name"]] = {"error": f"{type(error).__name__}: {error}"}
        cleanup_dist_env_and_memory()
    return found


if __name__ == "__main__":
    result = reads(json.loads(sys.argv[1]))
    print("RESULT " + json.dumps(result), flush=True)
