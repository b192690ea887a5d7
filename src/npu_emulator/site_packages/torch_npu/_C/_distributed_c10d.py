"""`ProcessGroupHCCL` as a name with options."""

from datetime import timedelta
from typing import Any


class ProcessGroupHCCL:
    """Made through torch.distributed's backend "hccl"; the class carries the options only."""

    class Options:
        """Options of a group, all ignored."""

        def __init__(self, is_high_priority_stream: bool = False) -> None:
            self.is_high_priority_stream = is_high_priority_stream
            self.op_timeout = timedelta(minutes=30)
            self.hccl_config: dict[str, Any] = {}
            self.global_ranks_in_group: list[int] = []
            self.group_id = ""

    def __new__(cls, store: Any, rank: int, size: int, options: Any = None) -> Any:
        from torch_npu.process_group import create

        return create(store, rank, size, timedelta(minutes=30))
