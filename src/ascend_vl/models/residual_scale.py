"""A smaller residual stream with the same results, for a dtype whose range the stream outgrows.

RMSNorm does not change when its input and the root of its epsilon shrink alike. So whatever enters the stream is
divided by a power of two, and every epsilon on the stream by its square: what leaves the norms is the same, bit for bit
where nothing overflows or underflows. The MLP's product shrinks before it is formed, since it overflows first.
"""

from typing import Any

import torch

SCALE = "ascend_vl_residual_scale"


def scale_of(model: Any) -> int:
    """How many times smaller than its weights say the residual stream of `model` is."""
    return int(getattr(model, SCALE, 1))


def shrink(model: Any, by: int) -> None:
    """Make the residual stream of a vLLM Qwen3-VL model `by` times smaller than it is now; `by` is a power of two.

    Before anything is compiled or captured. Hooks change inputs and outputs and no weight, so any layout does.
    Raises ValueError for another number.
    """
    if by < 1 or by & (by - 1):
        raise ValueError(f"{by} is not a power of two")
    share = 1.0 / by

    def output(module: Any, given: Any, out: torch.Tensor) -> torch.Tensor:
        return out * share

    def first(module: Any, given: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return (given[0] * share, *given[1:])

    def upper_half(module: Any, given: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        gate, up = given[0].chunk(2, dim=-1)
        return (torch.cat([gate, up * share], dim=-1), *given[1:])

    text = model.language_model.model
    text.embed_tokens.register_forward_hook(output)
    # Its main features stand in for embeddings, its deepstack features are added after the first layers.
    model.visual.register_forward_hook(output)
    norms = [text.norm]
    for layer in text.layers:
        layer.self_attn.o_proj.register_forward_pre_hook(first)
        layer.mlp.act_fn.register_forward_pre_hook(upper_half)
        norms += [layer.input_layernorm, layer.post_attention_layernorm]
    for norm in norms:
        norm.variance_epsilon *= share * share
    setattr(model, SCALE, scale_of(model) * by)
