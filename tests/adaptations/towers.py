"""Small towers with the module trees and calls of the frameworks' own, so that adaptations meet what they will meet."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

HEADS, SIZE = 2, 72
HIDDEN = HEADS * SIZE


class Linear(nn.Linear):
    """A linear that returns a pair, as vLLM's do."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, None]:
        return super().forward(x), None


class Rotation(nn.Module):
    """vllm-ascend's ApplyRotaryEmb: npu_rotary_mul on cos and sin of half a head."""

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        import torch_npu

        cos, sin = (torch.cat((t, t), -1).reshape(1, -1, 1, SIZE) for t in (cos, sin))
        return torch_npu.npu_rotary_mul(x, cos, sin)


class AscendMMEncoderAttention310(nn.Module):
    """vllm-ascend 0.18 and 0.23 on 310P: heads padded to 128, lengths copied to the host in every layer."""

    def __init__(self, approximate: bool) -> None:
        super().__init__()
        self.support_approximate_calculation = approximate

    def forward(self, query: Any, key: Any, value: Any, cu_seqlens: Any, max_seqlen: Any, sequence_lengths: Any) -> Any:
        import torch_npu

        lengths = torch.diff(cu_seqlens).to("cpu")
        q, k, v = (nn.functional.pad(t.flatten(0, 1), (0, 128 - SIZE)) for t in (query, key, value))
        out = torch.empty_like(q)
        arguments = {
            "query": q,
            "key": k,
            "value": v,
            "seq_len": lengths,
            "scale_value": SIZE**-0.5,
            "num_heads": HEADS,
            "num_kv_heads": HEADS,
            "out": out,
        }
        if self.support_approximate_calculation:
            torch_npu._npu_flash_attention_unpad_v2(**arguments, kernel_type=2)
        else:
            torch_npu._npu_flash_attention_unpad(**arguments)
        return out[..., :SIZE].reshape(query.shape).contiguous()


class Attention(nn.Module):
    """The block's attention of vLLM 0.18 and later."""

    def __init__(self, approximate: bool) -> None:
        super().__init__()
        self.num_attention_heads_per_partition, self.hidden_size_per_attention_head = HEADS, SIZE
        self.qkv, self.proj = Linear(HIDDEN, 3 * HIDDEN), Linear(HIDDEN, HIDDEN)
        self.attn = AscendMMEncoderAttention310(approximate)
        self.apply_rotary_emb = Rotation()

    def forward(self, x: Any, cu_seqlens: Any, cos: Any, sin: Any, max_seqlen: Any, sequence_lengths: Any) -> Any:
        rows, batch, _ = x.shape
        q, k, v = self.qkv(x)[0].view(rows, batch, 3, HEADS, SIZE).permute(2, 1, 0, 3, 4).contiguous()
        q, k = self.apply_rotary_emb(torch.cat((q, k)), cos, sin).view(2, batch, rows, HEADS, SIZE).unbind(0)
        out = self.attn(
            query=q,
            key=k,
            value=v,
            cu_seqlens=cu_seqlens,
            max_seqlen=max_seqlen,
            sequence_lengths=sequence_lengths,
        )
        return self.proj(out.flatten(2).transpose(0, 1).contiguous())[0]


class OldAttention(nn.Module):
    """The block's attention of vllm-ascend 0.11: no padding, no cast, lengths [0, a, b] on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.num_attention_heads_per_partition, self.hidden_size_per_attention_head = HEADS, SIZE
        self.qkv, self.proj = Linear(HIDDEN, 3 * HIDDEN), Linear(HIDDEN, HIDDEN)

    def split_qkv(self, qkv: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(t.view(*t.shape[:2], HEADS, SIZE) for t in qkv.chunk(3, dim=2))

    def forward(self, x: Any, cu_seqlens: Any, cos: Any, sin: Any) -> Any:
        import torch_npu

        q, k, v = (t.transpose(0, 1).contiguous() for t in self.split_qkv(self.qkv(x)[0]))
        q, k = torch_npu.npu_rotary_mul(q, cos, sin), torch_npu.npu_rotary_mul(k, cos, sin)
        q, k, v = (t.flatten(0, 1).contiguous() for t in (q, k, v))
        out = torch.empty_like(q)
        torch_npu._npu_flash_attention_unpad(
            query=q,
            key=k,
            value=v,
            seq_len=cu_seqlens,
            scale_value=SIZE**-0.5,
            num_heads=HEADS,
            num_kv_heads=HEADS,
            out=out,
        )
        return self.proj(out.reshape(1, x.shape[0], -1).transpose(0, 1).contiguous())[0]


class Block(nn.Module):
    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.attn = attention

    def forward(self, x: Any, **arguments: Any) -> Any:
        return x + self.attn(x, **arguments)


class Tower(nn.Module):
    """Blocks of either kind over packed pictures."""

    def __init__(self, version: str, depth: int = 2) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(11)
        self.version = version
        make = OldAttention if version == "0.11.0" else lambda: Attention(approximate=version == "0.23.0")
        self.blocks = nn.ModuleList(Block(make()) for _ in range(depth))
        self.deepstack_visual_indexes = [0]
        for name, parameter in self.named_parameters():
            gain = 2.5 if "qkv" in name else 1.0
            parameter.data = torch.randn(parameter.shape, generator=generator) * gain / parameter.shape[-1] ** 0.5
        self.half().requires_grad_(False)

    @property
    def dtype(self) -> torch.dtype:
        return self.blocks[0].attn.qkv.weight.dtype

    def forward(self, x: torch.Tensor, pictures: list[int]) -> torch.Tensor:
        """x (T, HIDDEN) -> (T, HIDDEN)."""
        rows = x.shape[0]
        angles = torch.outer(torch.arange(rows) % 7 + 1.0, torch.arange(SIZE // 2) + 1.0) / 20
        hidden = x[:, None]
        if self.version == "0.11.0":
            cos, sin = (f(torch.cat((angles, angles), -1)).reshape(1, -1, 1, SIZE) for f in (torch.cos, torch.sin))
            lengths = torch.tensor([0, *pictures], dtype=torch.int32)
            arguments: dict[str, Any] = {"cu_seqlens": lengths, "cos": cos, "sin": sin}
        else:
            offsets = torch.tensor([0, *pictures], dtype=torch.int32).cumsum(0, dtype=torch.int32)
            arguments = {
                "cu_seqlens": offsets.to(x.device),
                "cos": angles.cos().half().to(x.device),
                "sin": angles.sin().half().to(x.device),
                "max_seqlen": None,
                "sequence_lengths": None,
            }
        for block in self.blocks:
            hidden = block(hidden, **arguments)
        return hidden[:, 0]


class Model(nn.Module):
    """As much of a Qwen3-VL model as adaptations ask for."""

    def __init__(self, version: str) -> None:
        super().__init__()
        self.visual = Tower(version)
        self.config = SimpleNamespace(text_config=SimpleNamespace(hidden_size=96))


def pixels(pictures: list[int]) -> torch.Tensor:
    """(sum of pictures, HIDDEN) float16, each picture's rows depending on its place and length only."""
    parts = [
        torch.randn(rows, HIDDEN, generator=torch.Generator().manual_seed(100 * index + rows))
        for index, rows in enumerate(pictures)
    ]
    return torch.cat(parts).half()


def right(version: str, pictures: list[int]) -> torch.Tensor:
    """The tower in float64 without any operator: what all of it should give."""
    tower = Tower(version).double()
    hidden = pixels(pictures).double()
    rows = hidden.shape[0]
    angles = torch.outer(torch.arange(rows) % 7 + 1.0, torch.arange(SIZE // 2) + 1.0).double() / 20
    cos, sin = (f(torch.cat((angles, angles), -1))[:, None] for f in (torch.cos, torch.sin))
    mask = torch.full((rows, rows), float("-inf"), dtype=torch.float64)
    begin = 0
    for n in pictures:
        mask[begin : begin + n, begin : begin + n] = 0
        begin += n
    for block in tower.blocks:
        q, k, v = block.attn.qkv(hidden)[0].view(rows, 3, HEADS, SIZE).unbind(1)
        q, k = (t * cos + torch.cat((-t[..., SIZE // 2 :], t[..., : SIZE // 2]), -1) * sin for t in (q, k))
        weights = torch.softmax(torch.einsum("qhd,khd->hqk", q, k) * SIZE**-0.5 + mask, -1)
        hidden = hidden + block.attn.proj(torch.einsum("hqk,khd->qhd", weights, v).flatten(1))[0]
    return hidden


def off(features: torch.Tensor, version: str, pictures: list[int]) -> float:
    """How far features are from `right`, relative."""
    want = right(version, pictures)
    return float((features.double() - want).norm() / want.norm())
