"""The decoder, layer by layer, over vLLM's own modules: no attention metadata, no KV blocks, no scheduler.

Rows of hidden states live in a `Rows`; a drawing runs some layers, lets chat have a turn, and goes on where it stopped.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ascend_vl.drawing.attention import choose
from ascend_vl.drawing.ranks import Ranks
from ascend_vl.drawing.rotary import Rotary, Turns, turned
from ascend_vl.models import residual_scale

KeyValue = tuple[torch.Tensor, torch.Tensor]


@dataclass
class Rows:
    """Hidden states on their way through the decoder.

    `hidden` (rows, h) not yet added to `residual` (rows, h), as vLLM's layers keep them; `positions` (3, rows), and
    the `turns` they mean once a layer has run; `spans` cut the rows into branches; `spare`, like hidden, is there with
    several ranks, for one that must stand in.
    """

    hidden: torch.Tensor
    positions: torch.Tensor
    spans: tuple[slice, ...]
    spare: torch.Tensor | None = None
    residual: torch.Tensor | None = None
    turns: Turns | None = None

    @classmethod
    def standing_in(cls, spare: torch.Tensor | None) -> "Rows":
        """For a rank that failed to make its own: enough to take part in the other ranks' all-reduces."""
        assert spare is not None
        return cls(spare, torch.empty(3, 0), (), spare)


class Decoder:
    """The language model of a vLLM Qwen3-VL model object."""

    def __init__(self, model: Any, device: torch.device, ranks: Ranks) -> None:
        text = model.language_model.model
        self.layers = list(text.layers)
        self.norm, self.embed = text.norm, text.embed_tokens
        self.ranks = ranks
        attention = self.layers[0].self_attn
        self.heads, self.kv_heads, self.width = attention.num_heads, attention.num_kv_heads, attention.head_dim
        self.rotary = Rotary(attention.rotary_emb, device)
        self.dtype = self.layers[0].input_layernorm.weight.dtype
        self.hidden_size = self.layers[0].input_layernorm.weight.shape[0]
        self.attend = choose(device, self.heads, self.kv_heads, self.width, self.dtype)
        # bfloat16 has float32's range; float16 does not, and the residual stream is what outgrows it.
        self.wide = self.dtype == torch.float16
        self.scale = residual_scale.scale_of(model)
        # Largest absolute values by place, while somebody looks (`dtype_range`); looking waits for the device.
        self.peaks: dict[str, float] | None = None

    def causal_layer(
        self, rows: Rows, i: int, seen: torch.Tensor | None = None, feature: torch.Tensor | None = None
    ) -> KeyValue | None:
        """Layer i over a prefix; its rotated keys and its values (P, kv_heads, D).

        `feature` (tokens, h) is added after it to the rows at which `seen` (P,) is true.
        """
        kept: list[KeyValue] = []

        def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
            kept.append((k.clone(), v.clone()))
            return self.attend.causal(q, k, v, scale)

        self._layer(rows, i, attention)
        if feature is not None:
            self.ranks.local(lambda: _add(rows.hidden, seen, feature))
        return kept[0] if kept else None

    def full_layer(self, rows: Rows, i: int, prefixes: list[list[KeyValue]]) -> None:
        """Layer i over denoised rows: each branch's rows see that branch's prefix and each other, no mask.

        `prefixes` holds the keys and values of all layers, for each branch.
        """

        def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
            out = torch.empty_like(q)
            for span, prefix in zip(rows.spans, prefixes, strict=True):
                keys, values = prefix[i]
                out[span] = self.attend.full(q[span], torch.cat([keys, k[span]]), torch.cat([values, v[span]]), scale)
            return out

        self._layer(rows, i, attention)

    def final_norm(self, rows: Rows) -> torch.Tensor | None:
        """Normed hidden states (rows, h)."""
        return self.ranks.local(lambda: self._normed(self.norm, rows))

    def embed_tokens(self, ids: torch.Tensor, spare: torch.Tensor | None) -> torch.Tensor:
        """(tokens, h) for ids (tokens,). A collective where the vocabulary is split."""
        return self.ranks.joined(lambda: self.embed(ids), spare)

    def entering(self, x: torch.Tensor) -> torch.Tensor:
        """Rows (rows, h) float32 from the pixel head as they enter the residual stream."""
        return (x / self.scale).to(self.dtype)

    def spare(self, count: int, device: torch.device) -> torch.Tensor | None:
        """A buffer (count, h) for a rank that must stand in; None for one rank."""
        if self.ranks.size == 1:
            return None
        return torch.empty(count, self.hidden_size, dtype=self.dtype, device=device)

    def _layer(self, rows: Rows, i: int, attention: Callable[..., torch.Tensor]) -> None:
        layer, ranks = self.layers[i], self.ranks
        mixed = ranks.local(lambda: self._attended(layer, rows, attention))
        rows.hidden = ranks.joined(lambda: _output(layer.self_attn.o_proj(mixed)), rows.spare)
        self._note("attention", rows.hidden)
        normed = ranks.local(lambda: self._normed(layer.post_attention_layernorm, rows))
        rows.hidden = ranks.joined(lambda: _output(layer.mlp(normed)), rows.spare)
        self._note("mlp", rows.hidden)
        if rows.residual is not None:
            self._note("residual", rows.residual)

    def _note(self, place: str, x: torch.Tensor) -> None:
        if self.peaks is not None:
            largest = x.float().abs().max().item()
            # A NaN is kept, since no comparison with it is true.
            if not largest <= self.peaks.get(place, 0.0):
                self.peaks[place] = largest

    def _attended(self, layer: Any, rows: Rows, attention: Callable[..., torch.Tensor]) -> torch.Tensor:
        own = layer.self_attn
        normed = self._normed(layer.input_layernorm, rows)
        qkv = _output(own.qkv_proj(normed))
        q, k, v = qkv.split([own.q_size, own.kv_size, own.kv_size], dim=-1)
        count = len(q)
        if rows.turns is None:
            rows.turns = self.rotary.turns(rows.positions, self.dtype)
        q = turned(own.q_norm(q.reshape(count, self.heads, self.width)), rows.turns)
        k = turned(own.k_norm(k.reshape(count, self.kv_heads, self.width)), rows.turns)
        return attention(q, k, v.reshape(count, self.kv_heads, self.width), own.scaling).reshape(count, -1)

    def _normed(self, norm: Any, rows: Rows) -> torch.Tensor:
        if self.wide:
            rows.residual = rows.hidden.float() if rows.residual is None else rows.residual + rows.hidden
            return _rms_norm(rows.residual, norm).to(self.dtype)
        if rows.residual is None:
            rows.residual = rows.hidden
            return norm(rows.hidden)
        normed, rows.residual = norm(rows.hidden, rows.residual)
        return normed


def _add(hidden: torch.Tensor, seen: torch.Tensor | None, feature: torch.Tensor) -> None:
    extra = torch.zeros_like(hidden)
    extra[seen] = feature.to(hidden.dtype)
    hidden.add_(extra)


def _output(result: Any) -> torch.Tensor:
    # The linear layers of vLLM return (output, bias).
    return result[0] if isinstance(result, tuple) else result


def _rms_norm(x: torch.Tensor, norm: Any) -> torch.Tensor:
    scale = torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + norm.variance_epsilon)
    return x * scale * norm.weight.float()
