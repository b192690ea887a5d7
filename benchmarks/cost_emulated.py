"""Runs on an emulated chip: what thumbnails give the device to do, in one call and one by one, as JSON (emulated).

usage: python -m npu_emulator --chip 310P3 -- python benchmarks/cost_emulated.py PICTURES
"""

import json
import sys
from collections.abc import Callable

import torch

from ascend_vl.adaptations.seams.attention_operators import prompt_flash
from ascend_vl.adaptations.seams.lengths import Lengths
from ascend_vl.probes.references import peaked_heads
from npu_emulator import build

PATCHES, HEADS, WIDTH = 64, 16, 80
SCALE = 72**-0.5


def measured(side: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, int]:
    """The result on the host, and how many pieces of work were queued for it."""
    before = build.load().clock()["queued"]
    result = side()
    queued = build.load().clock()["queued"] - before
    return result.cpu(), int(queued)


def main(pictures: int) -> None:
    """Both sides, shown equal."""
    total = pictures * PATCHES
    q, k, v = (t.npu() for t in peaked_heads(total, HEADS, WIDTH, torch.float16))
    lengths, single = Lengths.of((PATCHES,) * pictures, total), Lengths.of((PATCHES,), PATCHES)

    def loop() -> torch.Tensor:
        parts = zip(q.split(PATCHES), k.split(PATCHES), v.split(PATCHES), strict=True)
        return torch.cat([prompt_flash(*part, single, SCALE) for part in parts])

    with torch.inference_mode():
        at_once, in_one_call = measured(lambda: prompt_flash(q, k, v, lengths, SCALE))
        one_by_one, in_a_loop = measured(loop)
    if not torch.allclose(at_once, one_by_one, atol=1e-3):
        raise AssertionError("the two sides differ")
    print("THUMBNAILS " + json.dumps({"together": in_one_call, "loop": in_a_loop}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
