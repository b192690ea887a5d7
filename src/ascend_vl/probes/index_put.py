"""Does assigning through a boolean mask work, and if not, what does?"""

from ascend_vl.adaptations.record import Finding
from ascend_vl.language import Text
from ascend_vl.probes.record import Note, Probe
from ascend_vl.probes.shapes import Shapes

# A picture of 160 embeddings among 171 tokens: the shape of the first reports.
TOKENS, PLACES = 171, 160


def run(shapes: Shapes, note: Note) -> Finding:
    """First the ways round it, then the mask on the CPU and on the device: the last may end the process."""
    import torch

    from ascend_vl.adaptations.seams.merge import METHODS
    from ascend_vl.probes import device, references

    npu, dtype = device.prepared(), getattr(torch, shapes.dtype)
    generator = torch.Generator().manual_seed(7)
    mask = torch.zeros(TOKENS, dtype=torch.bool)
    mask[torch.randperm(TOKENS, generator=generator)[:PLACES]] = True

    for width in sorted({shapes.hidden, shapes.merged}):
        before = torch.randn(TOKENS, width, generator=generator).to(dtype)
        rows = torch.randn(PLACES, width, generator=generator).to(dtype)
        want = references.merged(before, mask, rows)
        for method, assign in METHODS.items():
            target = before.to(npu)
            assign(target, mask, rows.to(npu))
            if torch.equal(device.fetched(target), want):
                note(method=method)
                break
        for place in (torch.device("cpu"), npu):
            note(question=f"mask on {place.type}, width {width}")
            target = before.to(npu)
            target[mask.to(place)] = rows.to(npu)
            if not torch.equal(device.fetched(target), want):
                return Finding(True, Text("wrong rows were written", "写入了错误的行"), {"width": width})
    return Finding(False, Text("assigning through a mask gives the right rows", "布尔掩码赋值结果正确"))


PROBE = Probe("index-put", Text("assigning through a boolean mask", "布尔掩码赋值"), run, __name__)
