"""The network, with exactly the tensor names of the published checkpoint, and a forward for packed training rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class VisionConfig:
    hidden_size: int = 144
    num_heads: int = 2
    depth: int = 6
    intermediate_size: int = 384
    patch_size: int = 16
    temporal_patch_size: int = 2
    spatial_merge_size: int = 2
    num_position_embeddings: int = 256
    deepstack_visual_indexes: tuple[int, ...] = (1, 2, 4)


@dataclass(frozen=True)
class TextConfig:
    vocab_size: int = 768
    hidden_size: int = 192
    num_hidden_layers: int = 5
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 128
    intermediate_size: int = 512
    mrope_section: tuple[int, int, int] = (24, 20, 20)
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-6


@dataclass(frozen=True)
class ModelConfig:
    vision: VisionConfig = field(default_factory=VisionConfig)
    text: TextConfig = field(default_factory=TextConfig)
    pixel_patch: int = 32

    @property
    def patch_values(self) -> int:
        return 3 * self.pixel_patch**2


def rotate_half(x: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """Plain attention over (batch, heads, tokens, width); written out because the fused CPU backward is slower."""
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    if bias is not None:
        scores = scores + bias
    return scores.softmax(-1).to(v.dtype) @ v


# --- the vision tower -----------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def block_order(rows: int, cols: int, merge: int) -> Tensor:
    """Row-major patch indices in the order of the tower: one merge block after another."""
    grid = torch.arange(rows * cols).view(rows // merge, merge, cols // merge, merge)
    return grid.permute(0, 2, 1, 3).reshape(-1)


@lru_cache(maxsize=64)
def position_mix(rows: int, cols: int, side: int, merge: int) -> Tensor:
    """Bilinear weights (patches, side * side) that resample the learned position grid to this picture."""

    def axis(n: int) -> Tensor:
        at = torch.linspace(0, side - 1, n)
        low = at.int().long()
        high = (low + 1).clamp(max=side - 1)
        out = torch.zeros(n, side)
        index = torch.arange(n)
        out[index, low] += 1 - (at - low)
        out[index, high] += at - low
        return out

    mix = torch.einsum("ra,cb->rcab", axis(rows), axis(cols)).reshape(rows * cols, side * side)
    return mix[block_order(rows, cols, merge)]


@lru_cache(maxsize=64)
def vision_angles(rows: int, cols: int, merge: int, head_dim: int) -> tuple[Tensor, Tensor]:
    frequencies = 1.0 / (10000.0 ** (torch.arange(0, head_dim // 2, 2).float() / (head_dim // 2)))
    order = block_order(rows, cols, merge)
    angles = torch.cat([(order // cols).float().outer(frequencies), (order % cols).float().outer(frequencies)], -1)
    angles = torch.cat([angles, angles], -1)
    return angles.cos(), angles.sin()


class PatchEmbed(nn.Module):
    def __init__(self, c: VisionConfig):
        super().__init__()
        size = (c.temporal_patch_size, c.patch_size, c.patch_size)
        self.proj = nn.Conv3d(3, c.hidden_size, size, stride=size)

    def forward(self, patches: Tensor) -> Tensor:
        return F.linear(patches, self.proj.weight.flatten(1), self.proj.bias)


class VisionAttention(nn.Module):
    def __init__(self, c: VisionConfig):
        super().__init__()
        self.heads = c.num_heads
        self.qkv = nn.Linear(c.hidden_size, 3 * c.hidden_size)
        self.proj = nn.Linear(c.hidden_size, c.hidden_size)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k = (t * cos + rotate_half(t) * sin for t in (q, k))
        return self.proj(attend(q, k, v, None).transpose(1, 2).reshape(b, n, d))


class VisionMLP(nn.Module):
    def __init__(self, c: VisionConfig):
        super().__init__()
        self.linear_fc1 = nn.Linear(c.hidden_size, c.intermediate_size)
        self.linear_fc2 = nn.Linear(c.intermediate_size, c.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear_fc2(F.gelu(self.linear_fc1(x), approximate="tanh"))


class VisionBlock(nn.Module):
    def __init__(self, c: VisionConfig):
        super().__init__()
        self.norm1 = nn.LayerNorm(c.hidden_size, eps=1e-6)
        self.norm2 = nn.LayerNorm(c.hidden_size, eps=1e-6)
        self.attn = VisionAttention(c)
        self.mlp = VisionMLP(c)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x), cos, sin)
        return x + self.mlp(self.norm2(x))


class Merger(nn.Module):
    """Four patches to one token; the deepstack mergers normalise after joining them, the main one before."""

    def __init__(self, c: VisionConfig, out: int, norm_joined: bool):
        super().__init__()
        self.joined = c.hidden_size * c.spatial_merge_size**2
        self.norm_joined = norm_joined
        self.norm = nn.LayerNorm(self.joined if norm_joined else c.hidden_size, eps=1e-6)
        self.linear_fc1 = nn.Linear(self.joined, self.joined)
        self.linear_fc2 = nn.Linear(self.joined, out)

    def forward(self, x: Tensor) -> Tensor:
        b = x.shape[0]
        x = self.norm(x.reshape(b, -1, self.joined)) if self.norm_joined else self.norm(x).reshape(b, -1, self.joined)
        return self.linear_fc2(F.gelu(self.linear_fc1(x)))


class Visual(nn.Module):
    def __init__(self, c: VisionConfig, out: int):
        super().__init__()
        self.config = c
        self.patch_embed = PatchEmbed(c)
        self.pos_embed = nn.Embedding(c.num_position_embeddings, c.hidden_size)
        self.blocks = nn.ModuleList(VisionBlock(c) for _ in range(c.depth))
        self.merger = Merger(c, out, norm_joined=False)
        self.deepstack_merger_list = nn.ModuleList(Merger(c, out, True) for _ in c.deepstack_visual_indexes)

    def forward(self, patches: Tensor, rows: int, cols: int) -> tuple[Tensor, list[Tensor]]:
        """patches (images, rows * cols, values), all of one size -> merged tokens and the three deepstack features."""
        c = self.config
        side = math.isqrt(c.num_position_embeddings)
        x = self.patch_embed(patches)
        x = x + position_mix(rows, cols, side, c.spatial_merge_size) @ self.pos_embed.weight
        cos, sin = vision_angles(rows, cols, c.spatial_merge_size, c.hidden_size // c.num_heads)
        deep: list[Tensor] = []
        for i, block in enumerate(self.blocks):
            x = block(x, cos, sin)
            if i in c.deepstack_visual_indexes:
                deep.append(self.deepstack_merger_list[len(deep)](x))
        return self.merger(x), deep


# --- the language model ---------------------------------------------------------------------------------------------


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        y = x.float()
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * y.to(x.dtype)


def text_angles(positions: Tensor, c: TextConfig) -> tuple[Tensor, Tensor]:
    """positions (3, batch, tokens) -> cos, sin (batch, 1, tokens, head_dim), axes interleaved T H W T H W ..."""
    half = c.head_dim // 2
    frequencies = 1.0 / (c.rope_theta ** (torch.arange(0, half).float() * 2 / c.head_dim))
    angles = positions.float().unsqueeze(-1) * frequencies
    mixed = angles[0].clone()
    for axis in (1, 2):
        index = torch.arange(axis, 3 * c.mrope_section[axis], 3)
        mixed[..., index] = angles[axis][..., index]
    mixed = torch.cat([mixed, mixed], -1).unsqueeze(1)
    return mixed.cos(), mixed.sin()


class TextAttention(nn.Module):
    def __init__(self, c: TextConfig):
        super().__init__()
        self.heads, self.kv_heads, self.width = c.num_attention_heads, c.num_key_value_heads, c.head_dim
        self.q_proj = nn.Linear(c.hidden_size, self.heads * self.width, bias=False)
        self.k_proj = nn.Linear(c.hidden_size, self.kv_heads * self.width, bias=False)
        self.v_proj = nn.Linear(c.hidden_size, self.kv_heads * self.width, bias=False)
        self.o_proj = nn.Linear(self.heads * self.width, c.hidden_size, bias=False)
        self.q_norm = RMSNorm(self.width, c.rms_norm_eps)
        self.k_norm = RMSNorm(self.width, c.rms_norm_eps)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, bias: Tensor) -> Tensor:
        b, n, _ = x.shape
        group = self.heads // self.kv_heads
        q = self.q_norm(self.q_proj(x).view(b, n, self.heads, -1)).transpose(1, 2)
        k = self.k_norm(self.k_proj(x).view(b, n, self.kv_heads, -1)).transpose(1, 2)
        v = self.v_proj(x).view(b, n, self.kv_heads, -1).transpose(1, 2)
        q, k = (t * cos + rotate_half(t) * sin for t in (q, k))
        # the query heads of one key head are stacked along the token axis, so keys are never copied
        q = q.reshape(b, self.kv_heads, group * n, self.width)
        out = attend(q, k, v, bias.repeat(1, 1, group, 1)).view(b, self.heads, n, self.width)
        return self.o_proj(out.transpose(1, 2).reshape(b, n, -1))


class TextMLP(nn.Module):
    def __init__(self, c: TextConfig):
        super().__init__()
        self.gate_proj = nn.Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.up_proj = nn.Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.down_proj = nn.Linear(c.intermediate_size, c.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class TextLayer(nn.Module):
    def __init__(self, c: TextConfig):
        super().__init__()
        self.input_layernorm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.self_attn = TextAttention(c)
        self.mlp = TextMLP(c)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, bias: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, bias)
        return x + self.mlp(self.post_attention_layernorm(x))


class LanguageModel(nn.Module):
    def __init__(self, c: TextConfig):
        super().__init__()
        self.config = c
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.layers = nn.ModuleList(TextLayer(c) for _ in range(c.num_hidden_layers))
        self.norm = RMSNorm(c.hidden_size, c.rms_norm_eps)

    def forward(
        self, x: Tensor, positions: Tensor, allowed: Tensor, deep: list[Tensor], kept: list[Tensor] | None = None
    ) -> Tensor:
        """allowed (batch, tokens, tokens) tells who sees whom; deep features are added after the first layers.

        kept, where given, collects the states after each layer.
        """
        cos, sin = text_angles(positions, self.config)
        bias = torch.zeros(allowed.shape).masked_fill_(~allowed, -1e9).unsqueeze(1)
        for i, layer in enumerate(self.layers):
            x = layer(x, cos, sin, bias)
            if i < len(deep):
                x = x + deep[i]
            if kept is not None:
                kept.append(x)
        return self.norm(x)


# --- the pixel head -------------------------------------------------------------------------------------------------


class PatchEmbedder(nn.Module):
    def __init__(self, values: int, hidden: int):
        super().__init__()
        self.proj1 = nn.Linear(values, hidden // 4, bias=False)
        self.proj2 = nn.Linear(hidden // 4, hidden)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj2(self.proj1(x))


class TimestepEmbedder(nn.Module):
    def __init__(self, hidden: int):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(256, hidden), nn.SiLU(), nn.Linear(hidden, hidden))

    def forward(self, t: Tensor) -> Tensor:
        """t in [0, 1]: 0 pure noise, 1 the clean picture."""
        rates = torch.exp(-math.log(10000) * torch.arange(128, dtype=torch.float32) / 128)
        angles = 1000 * t.float().unsqueeze(-1) * rates
        return self.mlp(torch.cat([angles.cos(), angles.sin()], -1))


class FinalLayer(nn.Module):
    def __init__(self, hidden: int, values: int):
        super().__init__()
        self.linear = nn.Linear(hidden, values)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


class Body(nn.Module):
    def __init__(self, c: ModelConfig):
        super().__init__()
        hidden = c.text.hidden_size
        self.visual = Visual(c.vision, hidden)
        self.language_model = LanguageModel(c.text)
        self.x_embedder = PatchEmbedder(c.patch_values, hidden)
        self.t_embedder1 = TimestepEmbedder(hidden)
        self.final_layer2 = FinalLayer(hidden, c.patch_values)


class DemoModel(nn.Module):
    def __init__(self, config: ModelConfig | None = None, seed: int = 0):
        super().__init__()
        self.config = config or ModelConfig()
        self.model = Body(self.config)
        self.lm_head = nn.Linear(self.config.text.hidden_size, self.config.text.vocab_size, bias=False)
        initialise(self, seed)

    def see(self, patches: Tensor, rows: int, cols: int) -> tuple[Tensor, list[Tensor]]:
        return self.model.visual(patches, rows, cols)

    def hidden(
        self,
        ids: Tensor,
        positions: Tensor,
        allowed: Tensor,
        slots: Tensor | None,
        seen: tuple[Tensor, list[Tensor]],
        kept: list[Tensor] | None = None,
    ) -> Tensor:
        """Last hidden states of rows of tokens; `slots` (batch, tokens) marks where picture features go, in order."""
        x = self.model.language_model.embed_tokens(ids)
        deep: list[Tensor] = []
        if slots is not None:
            main, features = seen
            x = place(x, slots, main)
            deep = [place(torch.zeros_like(x), slots, f) for f in features]
        return self.model.language_model(x, positions, allowed, deep, kept)

    def denoise(
        self, ids: Tensor, positions: Tensor, allowed: Tensor, tms: Tensor, target: Tensor, t: Tensor, z: Tensor
    ) -> Tensor:
        """Clean patches predicted from noisy ones. tms and target mark the tokens; t and z fill them, in order."""
        x = self.model.language_model.embed_tokens(ids)
        x = place(x, tms, self.model.t_embedder1(t))
        x = place(x, target, self.model.x_embedder(z))
        return self.model.final_layer2(self.model.language_model(x, positions, allowed, [])[target])


def place(x: Tensor, where: Tensor, values: Tensor) -> Tensor:
    return x.masked_scatter(where.unsqueeze(-1), values.reshape(-1, x.shape[-1]).to(x.dtype))


@torch.no_grad()
def initialise(model: DemoModel, seed: int) -> None:
    """Fan-in scaled weights; branches that write to a residual stream start smaller; position embeddings are large."""
    generator = torch.Generator().manual_seed(seed)
    vision, text = model.config.vision, model.config.text
    for name, p in model.named_parameters():
        if "norm" in name:
            continue
        if name.endswith(".bias"):
            p.zero_()
            continue
        std = p[0].numel() ** -0.5
        if "pos_embed" in name:
            std = 0.3
        elif "embed_tokens" in name:
            std = 0.5
        elif "lm_head" in name or "final_layer2" in name:
            std = 0.02
        elif name.endswith(("o_proj.weight", "down_proj.weight")):
            std *= (2 * text.num_hidden_layers) ** -0.5
        elif "blocks" in name and name.endswith(("attn.proj.weight", "linear_fc2.weight")):
            std *= (2 * vision.depth) ** -0.5
        elif "deepstack" in name and "fc2" in name:
            std *= 0.3
        elif "proj2" in name:
            std *= 0.25
        p.normal_(0, std, generator=generator)


class CellHead(nn.Module):
    """Thrown away at export: colour and shape of whatever covers each 32x32 cell, read off the merged vision tokens."""

    def __init__(self, hidden: int, colors: int, shapes: int, seed: int = 1):
        super().__init__()
        self.color = nn.Linear(hidden, colors + 1)
        self.shape = nn.Linear(hidden, shapes + 1)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for layer in (self.color, self.shape):
                layer.weight.normal_(0, hidden**-0.5, generator=generator)
                layer.bias.zero_()

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        return self.color(tokens), self.shape(tokens)


class ContextHead(nn.Module):
    """Thrown away too: reads a place and the number of a picture off states inside the language model."""

    def __init__(self, hidden: int, places: int, pictures: int = 2, seed: int = 2):
        super().__init__()
        self.place = nn.Linear(hidden, places + 1)
        self.picture = nn.Linear(hidden, pictures)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for layer in (self.place, self.picture):
                layer.weight.normal_(0, hidden**-0.5, generator=generator)
                layer.bias.zero_()

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor]:
        states = F.rms_norm(states, states.shape[-1:])
        return self.place(states), self.picture(states)
