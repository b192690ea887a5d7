"""Are the values of npu_rotary_mul right, whatever dtype they come in?"""

from ascend_vl.adaptations.record import Finding
from ascend_vl.language import Text
from ascend_vl.probes.record import Note, Probe
from ascend_vl.probes.shapes import Shapes


def run(shapes: Shapes, note: Note) -> Finding:
    """With cos and sin in the model's dtype and in float32, against float64."""
    import torch

    from ascend_vl.probes import judge, references
    from ascend_vl.probes.rotary_call import rotations

    for x, cos, sin, target in rotations(shapes):
        golden = references.rotated(x, cos, sin, torch.float64)
        verdict = judge.judge(golden, references.rotated(x, cos, sin, x.dtype), target.to(x.dtype))
        note(**verdict.numbers())
        if not verdict.right:
            return Finding(True, Text(f"wrong values: {verdict.reason}", f"数值错误：{verdict.reason}"))
    return Finding(False, Text(verdict.reason, verdict.reason))


PROBE = Probe("rotary-values", Text("values of npu_rotary_mul", "npu_rotary_mul 的数值"), run, __name__)
