import torch

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
