"""A worker of one vLLM model, without an engine round it: enough to draw, and quick to make."""

import io
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ascend_vl.drawing.job import Job, to_wire
from ascend_vl.drawing.worker import DrawingWorker
from ascend_vl.models import names


class BareWorker(DrawingWorker):
    """What vLLM's worker offers to our mixin."""

    def __init__(self, model: Any, device: Any) -> None:
        self.model_runner = SimpleNamespace(get_model=lambda: model)
        self.device = device


def load(directory: Path, dtype: str = "float32", rank: int = 0, size: int = 1, port: int | None = None) -> BareWorker:
    """The model of our class with its weights, on the CPU; `size` ranks meet at `port`."""
    os.environ["VLLM_CPU_KVCACHE_SPACE"] = "1"
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel, model_parallel_is_initialized
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.model_loader import get_model

    arguments = EngineArgs(
        model=str(directory),
        dtype=dtype,  # type: ignore[arg-type]
        enforce_eager=True,
        max_model_len=1024,
        tensor_parallel_size=size,
        hf_overrides={"architectures": [names.HIDREAM_O1], names.DRAWING_KEY: True},
        limit_mm_per_prompt={"image": 1, "video": 0},
    )
    # vLLM's own CPU worker does the same: there is no accelerator whose cache could be emptied.
    torch.accelerator.empty_cache = lambda: None
    config = arguments.create_engine_config()
    port = port or free_port()
    # Names the shared memory that ranks on one CPU reduce through; vLLM's own CPU worker sets it.
    os.environ["VLLM_DIST_IDENT"] = str(port)
    with set_current_vllm_config(config):
        address = f"tcp://127.0.0.1:{port}"
        if not model_parallel_is_initialized():
            init_distributed_environment(size, rank, address, rank, backend="gloo")
            initialize_model_parallel(size)
        model = get_model(vllm_config=config)
    return BareWorker(model, torch.device("cpu"))


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def draw(worker: BareWorker, job: Job, layers: int = 1000, name: str = "one") -> dict[str, NDArray[Any]]:
    """The trace of a job; fails the test on a failed status."""
    status = worker.drawing_begin(name, to_wire(job), [name])
    while status["state"] == "running":
        status = worker.drawing_advance(name, layers)
    assert status["state"] == "done", status
    out = worker.drawing_result(name)
    with np.load(io.BytesIO(out["trace"])) as arrays:
        return {key: arrays[key] for key in arrays.files}
