"""Does npu_rotary_mul give back the dtype it was given?"""

from ascend_vl.adaptations.record import Finding
from ascend_vl.language import Text
from ascend_vl.probes.record import Note, Probe
from ascend_vl.probes.shapes import Shapes


def run(shapes: Shapes, note: Note) -> Finding:
    """With cos and sin in the model's dtype and in float32."""
    from ascend_vl.probes.rotary_call import rotations

    for x, _, _, target in rotations(shapes):
        note(given=str(x.dtype), returned=str(target.dtype))
        if target.dtype != x.dtype:
            return Finding(True, Text(f"{x.dtype} in, {target.dtype} out", f"输入 {x.dtype}，输出 {target.dtype}"))
    return Finding(False, Text(f"{x.dtype} in, {x.dtype} out", f"输入输出均为 {x.dtype}"))


PROBE = Probe("rotary-dtype", Text("dtype of npu_rotary_mul", "npu_rotary_mul 的输出类型"), run, __name__)
