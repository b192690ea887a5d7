"""Reloaded by vllm-ascend 0.18.0 after it replaced ValuePack."""

from typing import Any

from torchair.core._concrete_graph import ValuePack as ValuePack


def _unpack_meta_list(values: Any) -> Any:
    """The values themselves."""
    return values


class _NpuGraphConverter:
    """A name to patch."""
