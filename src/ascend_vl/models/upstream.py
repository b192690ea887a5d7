"""The class this installation would use for a stock architecture, and what ours do beyond it."""

import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

logger = logging.getLogger("vllm.plugins.ascend_vl")


def stock_class(architecture: str) -> Any:
    """The class registered for `architecture` now, after every plugin: vLLM's own, or vllm-ascend 0.11's."""
    from vllm import ModelRegistry

    return ModelRegistry.models[architecture].load_model_cls()


def require_servable(vllm_config: Any) -> None:
    """Refuse a local checkpoint whose headers say that it cannot be served, before anything is allocated.

    `serve` asks the same earlier; this covers the printed command run by hand, whose own check accepts, for one, a
    missing k_proj. Raises ValueError naming the tensors or files at fault.
    """
    from ascend_vl.checkpoint import inspect_checkpoint
    from ascend_vl.errors import AscendVLError

    path = Path(str(vllm_config.model_config.model))
    if not path.is_dir() or is_dummy(vllm_config):
        return
    try:
        inspect_checkpoint(path).require_servable()
    except AscendVLError as error:
        raise ValueError(str(error)) from None


def is_dummy(vllm_config: Any) -> bool:
    """Whether weights are made up instead of loaded."""
    return str(vllm_config.load_config.load_format).rsplit(".", 1)[-1].lower() == "dummy"


def constructed(model: Any, vllm_config: Any) -> None:
    """The last step of each of our constructors: in the worker, after everybody else's patches."""
    from ascend_vl import adaptations

    adaptations.apply("construct", model)
    if is_dummy(vllm_config):
        # vLLM never calls load_weights then.
        adaptations.apply("loaded", model)


def load(model: Any, load_weights: Callable[[], set[str] | None]) -> set[str] | None:
    """Load by the stock method, then let the adaptations of phase "loaded" act."""
    from ascend_vl import adaptations

    loaded = load_weights()
    adaptations.apply("loaded", model)
    return loaded


class _HidingFile:
    """An open safetensors file that does not mention the tensors with these prefixes."""

    def __init__(self, file: Any, prefixes: tuple[str, ...]) -> None:
        self._file, self._prefixes = file, prefixes

    def keys(self) -> list[str]:
        return [name for name in self._file.keys() if not name.startswith(self._prefixes)]  # noqa: SIM118

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> "_HidingFile":
        return _HidingFile(self._file.__enter__(), self._prefixes)

    def __exit__(self, *error: object) -> Any:
        return self._file.__exit__(*error)


@contextlib.contextmanager
def unread(prefixes: tuple[str, ...]) -> Iterator[None]:
    """Within this, vLLM's default safetensors loader does not read tensors with these prefixes.

    Other load formats read whole files; there the model's name mapper drops the tensors after reading.
    """
    from vllm.model_executor.model_loader import weight_utils

    opened = getattr(weight_utils, "safe_open", None)
    if opened is None:
        yield
        return

    def safe_open(*given: Any, **named: Any) -> _HidingFile:
        return _HidingFile(opened(*given, **named), prefixes)

    vars(weight_utils)["safe_open"] = safe_open
    try:
        yield
    finally:
        vars(weight_utils)["safe_open"] = opened
