"""Keeping tensor-parallel ranks in step when one of them fails.

A rank that drops out between two all-reduces would leave the others waiting for ever. So before a slice all ranks
agree that each could allocate what the slice needs; and a rank that fails inside a slice goes on taking part in its
all-reduces, with zeros, until the slice ends and the failure is reported.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import torch

T = TypeVar("T")


class Ranks:
    """The tensor-parallel group as a slice sees it. `failure` is the first exception on this rank."""

    def __init__(self) -> None:
        from vllm.distributed import get_tp_group

        self._group = get_tp_group()
        self.size = int(self._group.world_size)
        self.first = int(self._group.rank_in_group) == 0
        self.failure: BaseException | None = None

    def agree(self, ok: bool) -> bool:
        """Whether every rank said so. A collective, over the CPU group."""
        if self.size == 1:
            return ok
        flag = torch.tensor([int(ok)], dtype=torch.int32)
        torch.distributed.all_reduce(flag, op=torch.distributed.ReduceOp.MIN, group=self._group.cpu_group)
        return bool(flag.item())

    def most(self, value: float) -> float:
        """The largest of all ranks' values. A collective, over the CPU group."""
        if self.size == 1:
            return value
        shared = torch.tensor([value], dtype=torch.float64)
        torch.distributed.all_reduce(shared, op=torch.distributed.ReduceOp.MAX, group=self._group.cpu_group)
        return float(shared.item())

    def local(self, work: Callable[[], T]) -> T | None:
        """Work without collectives; None once this rank has failed. Alone, an exception simply passes."""
        if self.size == 1:
            return work()
        if self.failure is None:
            try:
                return work()
            except Exception as error:
                self.failure = error
        return None

    def report(self) -> None:
        """Raise this rank's failure, if there is one, and forget it: its traceback holds the slice's tensors."""
        failure, self.failure = self.failure, None
        try:
            if failure is not None:
                raise failure
        finally:
            # Or the failure would hold this frame, and this frame the failure.
            del failure

    def joined(self, work: Callable[[], Any], spare: torch.Tensor | None) -> torch.Tensor:
        """Work that ends in one all-reduce of a tensor like `spare`, which stands in once this rank has failed."""
        if self.size == 1:
            return work()
        if self.failure is None:
            try:
                return work()
            except Exception as error:
                self.failure = error
        assert spare is not None
        return self._group.all_reduce(spare.zero_())
