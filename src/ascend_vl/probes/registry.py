"""The list of probes. Importing it imports no torch."""

from ascend_vl.adaptations.record import Finding
from ascend_vl.language import Text
from ascend_vl.probes import bfloat16, copy_race, index_put, rotary_dtype, rotary_values, vision
from ascend_vl.probes.record import Note, Probe
from ascend_vl.probes.shapes import Shapes


def recorded(shapes: Shapes, note: Note) -> Finding:
    """Not a question to an operator: `verify` sends the requests and records the finding."""
    return Finding(None, Text("verify records this", "由 verify 记录"))


PROBES: dict[str, Probe] = {
    probe.id: probe
    for probe in (
        bfloat16.PROBE,
        index_put.PROBE,
        rotary_dtype.PROBE,
        rotary_values.PROBE,
        vision.ZERO_LENGTH,
        vision.HEAD_WIDTH,
        vision.PRECISION,
        vision.BORDERS,
        copy_race.PROBE,
    )
}

# What `verify` records instead of a probe asking: was an identical second picture request answered like the first?
REPEAT = Probe(
    "repeat-request", Text("an identical second picture request", "完全相同的第二次图片请求"), recorded, __name__
)
