"""The rotation in the blocks of a vision tower."""

from typing import Any

from ascend_vl.adaptations.engine import require_phase
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

    replaced = []
    for index, attention in enumerate(attentions):
        kind = type(attention.apply_rotary_emb)
        attention.apply_rotary_emb = CastBack(attention.apply_rotary_emb)
        replaced.append(
            Replaced(
                f"visual.blocks.{index}.attn.apply_rotary_emb", f"{name_of(kind)} {where(kind)}", name_of(cast_back)
            )
        )
    return replaced
