"""Is what a non-blocking copy brought there when the next operator reads it?"""

from ascend_vl.adaptations.record import Finding
from ascend_vl.language import Text
from ascend_vl.probes.record import Note, Probe
from ascend_vl.probes.shapes import LARGE_PICTURE, Shapes

TRIES = 32


def run(shapes: Shapes, note: Note) -> Finding:
    """Copy positions without waiting and index with them at once, as the tower does; a race shows in some of the
    tries.
    """
    import torch

    from ascend_vl.probes import device

    npu = device.prepared()
    generator = torch.Generator().manual_seed(5)
    table = torch.randn(256, shapes.head_size // 2, generator=generator)
    on_device, wrong = table.to(npu), 0
    for _ in range(TRIES):
        positions = torch.randint(1, 256, (LARGE_PICTURE, 2), generator=generator)
        try:
            read = device.fetched(on_device[positions.to(npu, non_blocking=True)])
        except (IndexError, RuntimeError) as error:
            # What stood there before is no valid index.
            note(error=str(error)[:200])
            wrong += 1
            continue
        wrong += not torch.equal(read, table[positions])
    note(wrong=wrong, tries=TRIES)
    if wrong:
        return Finding(True, Text(f"{wrong} of {TRIES} reads were stale", f"{TRIES} 次中有 {wrong} 次读到旧数据"))
    return Finding(False, Text(f"{TRIES} of {TRIES} reads were right", f"{TRIES} 次读取均正确"))


PROBE = Probe("copy-race", Text("non-blocking copies", "异步拷贝"), run, __name__)
