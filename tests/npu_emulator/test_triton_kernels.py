import sys
from types import ModuleType

import pytest
import torch

from npu_emulator import triton_kernels
from npu_emulator.machine import Machine
from npu_emulator.triton_kernels import compute_slot_mapping


def test_slots_of_two_requests_and_padding() -> None:
    table = torch.tensor([[7, 3, 0], [5, 0, 0]], dtype=torch.int32)
    slots = torch.full((8,), 99)
    positions = torch.tensor([3, 4, 5, 0, 1])
    starts = torch.tensor([0, 3, 5, 5])
    compute_slot_mapping(
        (3,), 5, 8, starts, positions, table, 3, 4, slots, TOTAL_CP_WORLD_SIZE=1, PAD_ID=-1, BLOCK_SIZE=1024
    )
    assert slots.tolist() == [31, 12, 13, 20, 21, -1, -1, -1]


@pytest.mark.parametrize("name", ["vllm.v1.worker.block_table", "vllm_ascend.ops.triton.compute_slot_mapping"])
@pytest.mark.parametrize("chip", ["910B3", "310P3"])
def test_a_launched_kernel_is_replaced_in_every_module_that_has_its_own(
    monkeypatch: pytest.MonkeyPatch, chip: str, name: str
) -> None:
    holder = ModuleType(name)
    holder._compute_slot_mapping_kernel = object()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, name, holder)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(triton_kernels, "current", lambda: Machine(chip))
    triton_kernels.install()
    assert isinstance(holder._compute_slot_mapping_kernel, triton_kernels.Kernel) is (chip == "910B3")
