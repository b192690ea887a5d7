"""HiDream-O1-Image: Qwen3-VL and nine more tensors, a pixel-diffusion head, loaded or skipped unread."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from ascend_vl.models import names, upstream

_Stock: Any = upstream.stock_class("Qwen3VLForConditionalGeneration")

HEAD = ("x_embedder", "t_embedder1", "final_layer2")
# The checkpoint's prefixes -> ours. The stock mapper leaves them, and would look for a module called "model".
LOADED = {f"model.{module}.": f"{module}." for module in HEAD}
SKIPPED: dict[str, str | None] = dict.fromkeys(LOADED)

TIME_FREQUENCIES = 256


def head_modules(hidden: int, patch: int) -> dict[str, nn.Module]:
    """The three modules in the checkpoint's shapes; what is computed with them stands in drawing/head.py.

    `hidden` is the text width, `patch` the values of one patch vector.
    """
    x_embedder, t_embedder1, final_layer2 = nn.Module(), nn.Module(), nn.Module()
    x_embedder.proj1 = nn.Linear(patch, hidden // 4, bias=False)
    x_embedder.proj2 = nn.Linear(hidden // 4, hidden)
    t_embedder1.mlp = nn.Sequential(nn.Linear(TIME_FREQUENCIES, hidden), nn.SiLU(), nn.Linear(hidden, hidden))
    final_layer2.linear = nn.Linear(hidden, patch)
    return dict(zip(HEAD, (x_embedder, t_embedder1, final_layer2), strict=True))


class Qwen3VLForConditionalGeneration(_Stock):
    """HiDream-O1. With `drawing`, the head's modules are attributes `x_embedder`, `t_embedder1` and `final_layer2`.

    They are float32 whatever the model's dtype, because the head is unstable in float16, and whole on every rank.
    """

    # At class level, where quantisation settings are read from, the head is dropped.
    hf_to_vllm_mapper = dataclasses.replace(
        _Stock.hf_to_vllm_mapper, orig_to_new_prefix={**_Stock.hf_to_vllm_mapper.orig_to_new_prefix, **SKIPPED}
    )

    def __init__(self, *, vllm_config: Any, prefix: str = "model") -> None:
        upstream.require_servable(vllm_config)
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        config = vllm_config.model_config.hf_config
        self.drawing = bool(getattr(config, names.DRAWING_KEY, False))
        if self.drawing:
            self._add_head(config.text_config.hidden_size, patch_vector(config))
            reserve_workspace(self, vllm_config)
        upstream.constructed(self, vllm_config)
        if self.drawing:
            watch_range(self)

    def _add_head(self, hidden: int, patch: int) -> None:
        default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float32)
        try:
            for name, module in head_modules(hidden, patch).items():
                self.add_module(name, module)
        finally:
            torch.set_default_dtype(default)
        self.hf_to_vllm_mapper = dataclasses.replace(
            _Stock.hf_to_vllm_mapper, orig_to_new_prefix={**_Stock.hf_to_vllm_mapper.orig_to_new_prefix, **LOADED}
        )

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str] | None:
        """Names of the parameters loaded. Raises ValueError for a name the model does not have."""

        def stock() -> set[str] | None:
            return super(Qwen3VLForConditionalGeneration, self).load_weights(weights)

        if self.drawing:
            return upstream.load(self, stock)
        with upstream.unread(tuple(LOADED)):
            return upstream.load(self, stock)


def reserve_workspace(model: nn.Module, vllm_config: Any) -> None:
    """Hold the memory that drawing will need, so that vLLM's sizing of the KV cache counts it as weights."""
    from ascend_vl.drawing import workspace

    workspace.reserve(
        model,
        vllm_config.model_config.hf_config.to_dict(),
        vllm_config.model_config.dtype,
        vllm_config.parallel_config.tensor_parallel_size,
        # Where the loader builds the model.
        torch.empty(0).device,
    )


def watch_range(model: nn.Module) -> None:
    """Have a float16 model looked at before its first forward pass, and its residual stream shrunk if it must be."""
    from ascend_vl.drawing import dtype_range

    dtype_range.watch(model)


def patch_vector(config: Any) -> int:
    """Values in a patch of the pixel head: three channels of (image patch x merge) squared, 3*32*32 as published."""
    return 3 * (config.vision_config.patch_size * config.vision_config.spatial_merge_size) ** 2
