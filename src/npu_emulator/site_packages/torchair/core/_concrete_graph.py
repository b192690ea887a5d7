"""Names that vllm-ascend replaces or calls when it patches the compiler."""

from typing import Any


class ValuePack:
    """A value and what stands for it on the NPU."""


def _is_symlist(value: Any) -> bool:
    """Whether a list holds symbolic sizes; never here."""
    return False
