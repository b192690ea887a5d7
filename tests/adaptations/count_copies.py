"""Runs on an emulated chip: device-to-host copies of one tower forward, stock and with our attention, as JSON."""

import json
import os
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))

from towers import Model, pixels

from ascend_vl.adaptations import MachineFacts, apply
from npu_emulator import build

DEPTH, PICTURES = 6, [24, 8, 24]


class OnDevice(Model):
    """The model of `towers`, with its offsets on the device as vllm-ascend 0.18 has them."""

    def __init__(self) -> None:
        super().__init__("0.18.0")
        self.visual = type(self.visual)("0.18.0", DEPTH).npu()


def copies(model: OnDevice) -> int:
    """Copies from the device during one forward."""
    inputs = pixels(PICTURES).npu()
    before = build.load().clock()["device_to_host"]
    with torch.inference_mode():
        model.visual(inputs, PICTURES)
    return int(build.load().clock()["device_to_host"] - before)


def main() -> None:
    stock = OnDevice()
    result = {"depth": DEPTH, "stock": copies(stock)}
    os.environ["ASCEND_VL_ADAPT"] = "+vision-lengths,-rotary-dtype,-embedding-merge"
    ours = OnDevice()
    apply("construct", ours, facts=MachineFacts(chip="310P3", vllm_ascend="0.18.0"), findings={})
    result["ours"] = copies(ours)
    with torch.inference_mode():
        inputs = pixels(PICTURES).npu()
        result["equal"] = bool(torch.equal(ours.visual(inputs, PICTURES).cpu(), stock.visual(inputs, PICTURES).cpu()))
    print("COPIES " + json.dumps(result))


if __name__ == "__main__":
    main()
