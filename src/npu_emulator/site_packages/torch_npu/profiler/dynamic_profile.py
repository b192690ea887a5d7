"""Names of torch_npu.profiler.dynamic_profile; nothing is measured."""


def init(path: str = "") -> None:
    """Without effect."""


def step() -> None:
    """Without effect."""


def start(path: str = "") -> None:
    """Without effect."""
