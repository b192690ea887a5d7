"""Our attention in the blocks of a Qwen3-VL vision tower, installed when an adaptation needs it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ascend_vl.adaptations.phase import require_phase
from ascend_vl.adaptations.record import Replaced
from ascend_vl.adaptations.seams import attention_operators, rotary
from ascend_vl.adaptations.seams.functions import name_of, where
from ascend_vl.adaptations.seams.lengths import LengthsOfForward

if TYPE_CHECKING:
    import torch
    from torch import nn

SETTINGS = "ascend_vl_attention"
# What vllm-ascend's own classes pad a head between 64 and 128 to.
UPSTREAM_WIDTH = 128


@dataclass
class AttentionSettings:
    """How the blocks of one tower attend; adaptations change it, all blocks share it.

    `width` is what heads are padded to. `cast_rotary`: give rotated heads the dtype they had before;
    `rotary_by_elements`: rotate without the rotary operator (where our attention is what rotates, on 0.11).
    """

    operator: str
    width: int
    scale: float
    cast_rotary: bool = False
    rotary_by_elements: bool = False


def blocks_of(model: Any) -> list[Any]:
    """The attention modules of the tower's blocks. Raises ValueError for a model without such a tower."""
    visual = getattr(model, "visual", None)
    blocks = getattr(visual, "blocks", None)
    if blocks is None:
        raise ValueError(f"{type(model).__name__} has no visual.blocks")
    return [block.attn for block in blocks]


def head_of(attention: Any) -> tuple[int, int]:
    """(heads on this rank, head size) of an attention module of the tower."""
    return attention.num_attention_heads_per_partition, attention.hidden_size_per_attention_head


def stock_settings(attention: Any) -> AttentionSettings:
    """What the installed framework does by itself, so that installing ours alone changes nothing."""
    _, size = head_of(attention)
    inner = getattr(attention, "attn", None)
    if inner is None:
        return AttentionSettings("unpad", size, size**-0.5)
    width = UPSTREAM_WIDTH if 64 < size < UPSTREAM_WIDTH else size
    kind = type(inner).__name__
    if kind == "AscendMMEncoderAttention310":
        operator = "unpad-approximate" if getattr(inner, "support_approximate_calculation", False) else "unpad"
    elif kind == "AscendMMEncoderAttention":
        operator = "fused-infer" if hasattr(inner, "_run_vit_fia") else "fusion"
    else:
        operator, width = "plain", size
    return AttentionSettings(operator, width, size**-0.5)


def settings_of(model: Any) -> AttentionSettings:
    """The settings of the model's tower, if `install` has made them; raises AttributeError otherwise."""
    return getattr(model.visual, SETTINGS)


def install(model: Any) -> tuple[AttentionSettings, list[Replaced]]:
    """Put our attention into every block (once), doing at first exactly what the framework's did.

    Raises WrongPhase outside "construct" and ValueError for a model without a Qwen3-VL tower.
    """
    require_phase("construct")
    existing = getattr(model.visual, SETTINGS, None)
    if existing is not None:
        return existing, []
    attentions = blocks_of(model)
    settings = stock_settings(attentions[0])
    lengths = LengthsOfForward()
    make = _replace_forward if getattr(attentions[0], "attn", None) is None else _replace_inner
    replaced = [make(f"visual.blocks.{i}.attn", a, settings, lengths) for i, a in enumerate(attentions)]
    model.visual.register_forward_pre_hook(lengths.forget)
    setattr(model.visual, SETTINGS, settings)
    return settings, replaced


def _replace_inner(name: str, attention: Any, settings: AttentionSettings, lengths: LengthsOfForward) -> Replaced:
    """vLLM 0.12 and later: the block's `attn` does the attention, and nothing else."""
    original = attention.attn
    attention.attn = vision_attention(settings, lengths)
    return Replaced(f"{name}.attn", f"{name_of(type(original))} {where(type(original))}", name_of(vision_attention))


def vision_attention(settings: AttentionSettings, lengths: LengthsOfForward) -> "nn.Module":
    """A module with the call of vLLM's MMEncoderAttention: query, key, value (1, T, H, D)."""
    from torch import nn

    class VisionAttention(nn.Module):
        def forward(
            self,
            query: "torch.Tensor",
            key: "torch.Tensor",
            value: "torch.Tensor",
            cu_seqlens: "torch.Tensor | None" = None,
            max_seqlen: "torch.Tensor | None" = None,
            sequence_lengths: "torch.Tensor | None" = None,
        ) -> "torch.Tensor":
            rows = query.shape[0] * query.shape[1]
            q, k, v = (t.flatten(0, 1) for t in (query, key, value))
            if sequence_lengths is not None and sequence_lengths.device.type == "cpu":
                found = lengths.get(sequence_lengths, rows, as_offsets=False)
            elif cu_seqlens is not None:
                found = lengths.get(cu_seqlens, rows, as_offsets=True)
            else:
                raise ValueError("a vision tower's attention was called without the lengths of its pictures")
            out = attend(settings, q, k, v, found)
            return out.reshape(query.shape).contiguous()

    return VisionAttention()


def attend(settings: AttentionSettings, q: Any, k: Any, v: Any, lengths: Any) -> Any:
    """Attention by the settings; q and k take v's dtype if rotation is to be cast back."""
    if settings.cast_rotary:
        q, k = q.to(v.dtype), k.to(v.dtype)
    return attention_operators.padded(settings.operator, q, k, v, lengths, settings.scale, settings.width)


def _replace_forward(name: str, attention: Any, settings: AttentionSettings, lengths: LengthsOfForward) -> Replaced:
    """vllm-ascend 0.11: one forward does projection, rotation and attention, with lengths [0, a, b] on the CPU."""
    original = type(attention).forward

    def forward(x: Any, cu_seqlens: Any, cos: Any, sin: Any) -> Any:
        import torch_npu

        q, k, v = (t.transpose(0, 1).contiguous() for t in attention.split_qkv(attention.qkv(x)[0]))
        rotate = rotary.rotated if settings.rotary_by_elements else torch_npu.npu_rotary_mul
        q, k = (rotate(t, cos, sin) for t in (q, k))
        rows = q.shape[0] * q.shape[1]
        found = lengths.get(cu_seqlens, rows, as_offsets=False)
        out = attend(settings, q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), found)
        shaped = out.reshape(v.shape[0], v.shape[1], -1).transpose(0, 1).contiguous()
        return attention.proj(shaped)[0]

    attention.forward = forward
    return Replaced(f"{name}.forward", where(original), name_of(_replace_forward))
