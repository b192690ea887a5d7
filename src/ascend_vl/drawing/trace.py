"""The arrays of one drawing, under the names of the reference values that the tests use.

Per branch k: `b{k}_input_ids b{k}_position_ids b{k}_token_types b{k}_vinput_mask`; with references also
`b0_image_grid_thw b0_cond_image_embeds b0_deepstack{0,1,2}`. Per step i: `s{i}_t s{i}_b{k}_x_pred s{i}_prev`,
`s{i}_flash_noise`. Then `noise_tokens timesteps sigmas z_final image meta_json`.
"""

import io
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ascend_vl.drawing.job import Job

Arrays = dict[str, NDArray[Any]]


def start_trace(job: Job, noise: NDArray[np.float32], timesteps: Any, sigmas: Any) -> Arrays:
    """What is known before the first step. `noise` (N, values)."""
    arrays: Arrays = {
        "timesteps": np.asarray(timesteps, dtype=np.int64),
        "sigmas": np.asarray(sigmas, dtype=np.float32),
        "noise_tokens": noise[None].astype(np.float32),
    }
    for k, branch in enumerate(job.branches):
        arrays[f"b{k}_input_ids"] = branch.input_ids
        arrays[f"b{k}_position_ids"] = branch.position_ids
        arrays[f"b{k}_token_types"] = branch.token_types
        arrays[f"b{k}_vinput_mask"] = branch.patch_mask
    if job.conditions is not None:
        arrays["b0_image_grid_thw"] = job.conditions.grid_thw
    meta = {
        "width": job.width,
        "height": job.height,
        "seed": job.seed,
        "recipe": asdict(job.recipe),
        "exact": job.exact,
    }
    arrays["meta_json"] = np.asarray(json.dumps(meta, ensure_ascii=False))
    return arrays


def trace_bytes(job: Job, steps: int) -> int:
    """Bytes that tracing so many steps keeps, about."""
    rows = len(job.branches) * (job.target_tokens + job.reference_tokens) + 2 * job.target_tokens
    return steps * rows * 3 * job.patch_size**2 * 4


def to_npz(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """The arrays as an uncompressed .npz file."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()
