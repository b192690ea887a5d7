"""Does the chip compute in bfloat16?"""

from ascend_vl.adaptations.record import Finding
from ascend_vl.language import Text
from ascend_vl.probes.record import Note, Probe
from ascend_vl.probes.shapes import Shapes

FRACTAL_NZ = 29


def run(shapes: Shapes, note: Note) -> Finding:
    """A product and a normalisation in bfloat16, and on 310P the weight format that vllm-ascend casts to."""
    import torch
    import torch_npu

    from ascend_vl.probes import device

    npu = device.prepared()
    weight = torch.randn(64, 64, generator=torch.Generator().manual_seed(1)).bfloat16()
    on_device = weight.to(npu)
    if device.chip_name().startswith("310P"):
        on_device = torch_npu.npu_format_cast(on_device, FRACTAL_NZ)
    product = torch_npu.npu_rms_norm(on_device @ on_device, on_device[0].contiguous(), 1e-6)[0]
    wide = weight.float() @ weight.float()
    want = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6) * weight[0].float()
    if not torch.allclose(device.fetched(product).float(), want, atol=0.05, rtol=0.05):
        return Finding(True, Text("bfloat16 gives wrong values", "bfloat16 结果错误"))
    return Finding(False, Text("the chip computes in bfloat16", "该芯片可用 bfloat16 计算"))


PROBE = Probe("bfloat16", Text("bfloat16", "bfloat16"), run, __name__)
