"""Are the values of npu_rotary_mul right, whatever dtype they come in?"""

from ascend_vl.adaptations.record import Finding
from ascend_vl.language import Text
from ascend_vl.probes.record import Note, Probe
from ascend_vl.probes.shapes import Shapes


def run(shapes: Shapes, note: Note) -> Finding:
    """With cos and sin in the model's dtype and in float32, against float64."""
    import torch
    import torch_npu

    from ascend_vl.probes import device, judge, references

    npu, dtype = device.prepared(), getattr(torch, shapes.dtype)
    x, _, _ = references.peaked_heads(256, shapes.vision_heads, shapes.head_size, dtype)
    angles = torch.randn(256, shapes.head_size // 2, generator=torch.Generator().manual_seed(3)).repeat(1, 2)
    for table in (dtype, torch.float32):
        cos, sin = (f(angles).to(table)[None, :, None] for f in (torch.cos, torch.sin))
        target = device.fetched(torch_npu.npu_rotary_mul(x[None].to(npu), cos.to(npu), sin.to(npu)))
        golden = references.rotated(x[None], cos, sin, torch.float64)
        verdict = judge.judge(golden, references.rotated(x[None], cos, sin, dtype), target.to(dtype))
        note(**verdict.numbers())
        if not verdict.right:
            return Finding(True, Text(f"wrong values: {verdict.reason}", f"数值错误：{verdict.reason}"))
    return Finding(False, Text(verdict.reason, verdict.reason))


PROBE = Probe("rotary-values", Text("values of npu_rotary_mul", "npu_rotary_mul 的数值"), run, __name__)
