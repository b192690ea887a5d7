"""Qwen3-VL, dense: the stock class plus the adaptations this machine needs."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ascend_vl.models import upstream

if TYPE_CHECKING:
    import torch

_Stock: Any = upstream.stock_class("Qwen3VLForConditionalGeneration")


class Qwen3VLForConditionalGeneration(_Stock):
    """Stock Qwen3-VL; `visual` and `language_model` are upstream's module trees, unchanged in name."""

    def __init__(self, *, vllm_config: Any, prefix: str = "model") -> None:
        upstream.require_servable(vllm_config)
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        upstream.constructed(self, vllm_config)

    def load_weights(self, weights: "Iterable[tuple[str, torch.Tensor]]") -> set[str] | None:
        """Names of the parameters loaded. Raises ValueError for a name the model does not have."""
        return upstream.load(self, lambda: super(Qwen3VLForConditionalGeneration, self).load_weights(weights))
