"""The part of a checkpoint's tensor that a vLLM layer holds on its tensor-parallel rank, and tensors of all ranks."""

from typing import Any

import torch


def is_a(module: Any, name: str) -> bool:
    """Whether a layer is, or subclasses, vLLM's class of this name (platforms subclass them)."""
    return any(cls.__name__ == name for cls in type(module).__mro__)


def ranks_of(module: Any) -> int:
    """Over how many ranks a layer is split; 1 for one that every rank has whole."""
    return int(getattr(module, "tp_size", 1))


def sums_ranks(module: Any) -> bool:
    """Whether a layer takes a part of its input on each rank and gives the sum of all ranks."""
    return is_a(module, "RowParallelLinear") and ranks_of(module) > 1


def of_rank(module: Any, parameter: str, stored: torch.Tensor) -> torch.Tensor:
    """What `module` must hold of a whole tensor (rows, ...) of a checkpoint; the tensor itself when it is not split.

    Rows are split part by part (q, k and v; gate and up); a part with fewer heads than ranks is held by several.
    """
    ranks = ranks_of(module)
    if ranks == 1:
        return stored
    rank = int(module.tp_rank)
    if is_a(module, "RowParallelLinear"):
        width = int(module.input_size_per_partition)
        return stored[:, rank * width : (rank + 1) * width] if parameter == "weight" else stored
    if is_a(module, "VocabParallelEmbedding"):
        indices = module.shard_indices
        return stored[indices.org_vocab_start_index : indices.org_vocab_end_index]
    pieces = []
    for whole, size in zip(
        stored.split(_parts(module, stored.shape[0])), map(int, module.output_partition_sizes), strict=True
    ):
        index = rank * (whole.shape[0] // size) // ranks
        pieces.append(whole[index * size : (index + 1) * size])
    return torch.cat(pieces)


def _parts(module: Any, rows: int) -> list[int]:
    """Rows of each part in the whole tensor."""
    if is_a(module, "QKVParallelLinear"):
        head, width = int(module.head_size), int(getattr(module, "v_head_size", module.head_size))
        keys = int(module.total_num_kv_heads)
        return [int(module.total_num_heads) * head, keys * head, keys * width]
    return [int(size) for size in getattr(module, "output_sizes", [rows])]


def gather(tensor: torch.Tensor) -> list[torch.Tensor]:
    """`tensor` of every tensor-parallel rank, in order; each rank must call this at the same time."""
    from vllm.distributed import get_tp_group

    group = get_tp_group()
    found: list[Any] = [None] * group.world_size
    torch.distributed.all_gather_object(found, tensor, group=group.cpu_group)
    return found
