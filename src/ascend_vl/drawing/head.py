"""HiDream-O1's pixel head: nine tensors, float32, the same on every rank, as modules of our model class."""

import math
from typing import Any

import torch

FREQUENCIES = 128
LONGEST_PERIOD = 10000.0


def embed_time(model: Any, t: torch.Tensor) -> torch.Tensor:
    """(1, hidden) float32 for t (1,) in [0, 1]: cosines then sines of 1000 t, Linear, SiLU, Linear."""
    first, second = model.t_embedder1.mlp[0], model.t_embedder1.mlp[2]
    rates = torch.exp(-math.log(LONGEST_PERIOD) * torch.arange(FREQUENCIES, dtype=torch.float32) / FREQUENCIES)
    angles = (1000.0 * t.float())[:, None] * rates
    waves = torch.cat([angles.cos(), angles.sin()], dim=-1).to(first.weight.device)
    return _plain(second, torch.nn.functional.silu(_plain(first, waves)))


def embed_patches(model: Any, patches: torch.Tensor) -> torch.Tensor:
    """(rows, values) float32 to (rows, hidden) float32; no activation between the two maps."""
    return _plain(model.x_embedder.proj2, _plain(model.x_embedder.proj1, patches))


def clean_patches(model: Any, hidden: torch.Tensor) -> torch.Tensor:
    """(rows, hidden) of any dtype to the predicted clean patches (rows, values) float32."""
    return _plain(model.final_layer2.linear, hidden.float())


def _plain(module: Any, x: torch.Tensor) -> torch.Tensor:
    # The linear layers of vLLM return (output, bias).
    out = module(x)
    return out[0] if isinstance(out, tuple) else out
