"""The list of probes. Importing it imports no torch."""

from ascend_vl.probes import bfloat16, copy_race, index_put, rotary_dtype, vision
from ascend_vl.probes.record import Probe

PROBES: dict[str, Probe] = {
    probe.id: probe
    for probe in (
        bfloat16.PROBE,
        index_put.PROBE,
        rotary_dtype.PROBE,
        vision.ZERO_LENGTH,
        vision.HEAD_WIDTH,
        vision.PRECISION,
        vision.BORDERS,
        copy_race.PROBE,
    )
}
