"""A tensor's summary: enough to tell two tensors apart, and by how much, without storing either.

The sketch is a count sketch (Charikar, Chen, Farach-Colton 2002): element i goes to bucket h(i) with sign s(i). The
sketch of a difference is the difference of sketches, and its squared norm estimates the tensor's, within about
sqrt(2 / 256) = 9 % (one standard deviation). Every element takes part, so a fault in one patch shows.
"""

import hashlib
import math
from typing import Any

import numpy as np
import numpy.typing as npt

BUCKETS = 256


def summary(values: npt.NDArray[Any], dtype: str) -> dict[str, Any]:
    """Shape, hash and statistics of a tensor.

    `values` is a float32 or float64 array; `dtype` the name the engine held it in. Numbers that are not finite are
    counted, and zero in the statistics and the sketch.
    """
    contiguous = np.ascontiguousarray(values, dtype=np.float32)
    finite = np.isfinite(contiguous)
    clean = np.where(finite, contiguous, 0).astype(np.float64).ravel()
    return {
        "shape": list(values.shape),
        "dtype": dtype,
        "sha256": hashlib.sha256(contiguous.tobytes()).hexdigest(),
        "not_finite": int(finite.size - finite.sum()),
        "mean": float(clean.mean()) if clean.size else 0.0,
        "max_abs": float(np.abs(clean).max()) if clean.size else 0.0,
        "norm": float(np.linalg.norm(clean)),
        "sketch": [float(f"{value:.9g}") for value in sketch(clean)],
    }


def sketch(flat: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Count sketch of a flat float64 vector, (256,)."""
    index = np.arange(flat.size, dtype=np.uint64)
    # Knuth's multiplicative hashing, two independent odd constants, high bits.
    mixed = (index * np.uint64(0x9E3779B97F4A7C15)) ^ (index >> np.uint64(7))
    bucket = ((mixed * np.uint64(0xD1B54A32D192ED03)) >> np.uint64(56)).astype(np.int64)
    sign = 1.0 - 2.0 * ((mixed * np.uint64(0x94D049BB133111EB)) >> np.uint64(63)).astype(np.float64)
    sums: npt.NDArray[np.float64] = np.bincount(bucket, weights=flat * sign, minlength=BUCKETS).astype(np.float64)
    return sums


def relative_difference(base: dict[str, Any], candidate: dict[str, Any]) -> float:
    """Estimated ||candidate - base|| / ||base|| from two summaries; 0 for equal hashes, inf for other shapes or NaN."""
    if base["sha256"] == candidate["sha256"]:
        return 0.0
    if base["shape"] != candidate["shape"] or base["not_finite"] or candidate["not_finite"]:
        return math.inf
    difference = np.linalg.norm(np.array(candidate["sketch"]) - np.array(base["sketch"]))
    return float(difference / base["norm"]) if base["norm"] else math.inf
