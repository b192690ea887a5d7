"""Rotary embedding over three axes, from the rows' own positions.

vLLM's module is asked for its constants only: on 310P vllm-ascend's reads tables that its model runner fills once a
forward pass, whatever positions it is called with.
"""

from typing import Any

import torch

Turns = tuple[torch.Tensor, torch.Tensor]


class Rotary:
    """`module` is vLLM's MRotaryEmbedding. Raises ValueError for a kind that Qwen3-VL does not use."""

    def __init__(self, module: Any, device: torch.device) -> None:
        sections, width = module.mrope_section, module.head_size
        if not sections or not getattr(module, "mrope_interleaved", False) or module.rotary_dim != width:
            raise ValueError(f"this rotary embedding is not Qwen3-VL's: sections {sections}, width {width}")
        powers = torch.arange(0, width, 2, dtype=torch.int64).float() / width
        self._rates = (1.0 / module.base**powers).to(device)
        axes = torch.zeros(width // 2, dtype=torch.int64)
        # Time, row, column, time, ... until an axis has its share; what is left is time.
        for axis in (1, 2):
            axes[axis : 3 * sections[axis] : 3] = axis
        self._axes = axes.to(device)

    def turns(self, positions: torch.Tensor, dtype: torch.dtype) -> Turns:
        """Cosines and sines (rows, 1, width / 2) for positions (3, rows); angles in float32, as the reference's."""
        angles = positions[self._axes].T.float() * self._rates
        return angles.cos().to(dtype)[:, None], angles.sin().to(dtype)[:, None]


def turned(x: torch.Tensor, turns: Turns) -> torch.Tensor:
    """x (rows, heads, width) rotated by halves."""
    cos, sin = turns
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
