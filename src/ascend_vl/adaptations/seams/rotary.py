"""The rotation in the blocks of a vision tower."""

from collections.abc import Callable
from typing import Any

from ascend_vl.adaptations.phase import require_phase
from ascend_vl.adaptations.record import Replaced
from ascend_vl.adaptations.seams.functions import name_of, where


def cast_back(attentions: list[Any]) -> list[Replaced]:
    """Wrap each block's rotation so that its result has the dtype of what was rotated. Raises WrongPhase outside
    "construct".
    """
    require_phase("construct")
    from torch import nn

    class CastBack(nn.Module):
        def __init__(self, rotation: nn.Module) -> None:
            super().__init__()
            self.rotation = rotation

        def forward(self, x: Any, cos: Any, sin: Any) -> Any:
            return self.rotation(x, cos, sin).to(x.dtype)

    return _replaced(attentions, CastBack, name_of(cast_back))


def by_elements(attentions: list[Any]) -> list[Replaced]:
    """Rotate in each block without the rotary operator. Raises WrongPhase outside "construct"."""
    require_phase("construct")
    from torch import nn

    class ByElements(nn.Module):
        def forward(self, x: Any, cos: Any, sin: Any) -> Any:
            return rotated(x, cos, sin)

    return _replaced(attentions, lambda rotation: ByElements(), name_of(by_elements))


def rotated(x: Any, cos: Any, sin: Any) -> Any:
    """Heads (..., S, H, D) turned by cos and sin, (S, D / 2) or (1, S, 1, D) whose halves are equal.

    In float32, as the operator computes: vllm-ascend 0.11 hands float32 tables to it.
    """
    import torch

    half = x.shape[-1] // 2
    c, s = (table[..., :half].reshape(-1, 1, half).float() for table in (cos, sin))
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * c - b * s, b * c + a * s), -1).to(x.dtype)


def _replaced(attentions: list[Any], make: Callable[[Any], Any], ours: str) -> list[Replaced]:
    """Give each block make(its rotation)."""
    replaced = []
    for index, attention in enumerate(attentions):
        kind = type(attention.apply_rotary_emb)
        attention.apply_rotary_emb = make(attention.apply_rotary_emb)
        place = f"visual.blocks.{index}.attn.apply_rotary_emb"
        replaced.append(Replaced(place, f"{name_of(kind)} {where(kind)}", ours))
    return replaced
