"""One rotation of vision heads by npu_rotary_mul, for the probes that judge it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ascend_vl.probes.shapes import Shapes

if TYPE_CHECKING:
    import torch

    Rotation = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def rotations(shapes: Shapes) -> "Iterator[Rotation]":
    """(x, cos, sin, what the operator made of them), with tables in the model's dtype (vllm-ascend 0.12 and later),
    then in float32 (0.11). x and the result (1, 256, heads, head size), tables (1, 256, 1, head size); on the host.
    """
    import torch
    import torch_npu

    from ascend_vl.probes import device, references

    npu, dtype = device.prepared(), getattr(torch, shapes.dtype)
    x = references.peaked_heads(256, shapes.vision_heads, shapes.head_size, dtype)[0][None]
    angles = torch.randn(256, shapes.head_size // 2, generator=torch.Generator().manual_seed(3)).repeat(1, 2)
    for table in (dtype, torch.float32):
        cos, sin = (f(angles).to(table)[None, :, None] for f in (torch.cos, torch.sin))
        yield x, cos, sin, device.fetched(torch_npu.npu_rotary_mul(x.to(npu), cos.to(npu), sin.to(npu)))
