"""Does npu_rotary_mul give back the dtype it was given?"""

from ascend_vl.adaptations.record import Finding
from ascend_vl.language import Text
from ascend_vl.probes.record import Note, Probe
from ascend_vl.probes.shapes import Shapes


def run(shapes: Shapes, note: Note) -> Finding:
    """With cos and sin in the model's dtype (vllm-ascend 0.12 and later) and in float32 (0.11)."""
    import torch
    import torch_npu

    from ascend_vl.probes import device, references

    npu, dtype = device.prepared(), getattr(torch, shapes.dtype)
    x, _, _ = references.peaked_heads(256, shapes.vision_heads, shapes.head_size, dtype)
    angles = torch.randn(256, shapes.head_size // 2, generator=torch.Generator().manual_seed(3)).repeat(1, 2)
    for table in (dtype, torch.float32):
        cos, sin = (f(angles).to(table)[None, :, None] for f in (torch.cos, torch.sin))
        target = device.fetched(torch_npu.npu_rotary_mul(x[None].to(npu), cos.to(npu), sin.to(npu)))
        note(given=str(dtype), returned=str(target.dtype))
        if target.dtype != dtype:
            return Finding(True, Text(f"{dtype} in, {target.dtype} out", f"输入 {dtype}，输出 {target.dtype}"))
    return Finding(False, Text(f"{dtype} in, {dtype} out", f"输入输出均为 {dtype}"))


PROBE = Probe("rotary-dtype", Text("dtype of npu_rotary_mul", "npu_rotary_mul 的输出类型"), run, __name__)
