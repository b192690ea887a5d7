"""Putting picture embeddings into their places without assigning through a boolean mask."""

import functools
import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch


def by_index_copy(target: "torch.Tensor", mask: "torch.Tensor", rows: "torch.Tensor") -> None:
    """target[mask] = rows by index_copy_; target (T, C), mask (T,) bool on any device, rows (number of True, C)."""
    index = mask.nonzero().flatten()
    _check(len(rows), index.numel())
    target.index_copy_(0, index.to(target.device), rows)


def by_gather(target: "torch.Tensor", mask: "torch.Tensor", rows: "torch.Tensor") -> None:
    """The same by choosing for every row, where index_copy_ fails too."""
    import torch

    _check(len(rows), int(mask.sum()))
    mask = mask.to(target.device)
    source = (mask.to(torch.int32).cumsum(0) - 1).clamp_(min=0)
    target.copy_(torch.where(mask[:, None], rows.index_select(0, source), target))


def _check(embeddings: int, places: int) -> None:
    if embeddings != places:
        raise CountMismatch(embeddings, places)


class CountMismatch(ValueError):
    """There are more or fewer embeddings than places for them."""

    def __init__(self, embeddings: int, places: int) -> None:
        super().__init__(f"Attempted to assign {embeddings} multimodal tokens to {places} placeholders")
        self.embeddings, self.places = embeddings, places


METHODS: "dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]]" = {
    "index-copy": by_index_copy,
    "gather": by_gather,
}


def merge_with(method: str) -> "Callable[..., torch.Tensor]":
    """A function with the call of vLLM's `_merge_multimodal_embeddings`, merging by `method`.

    It raises ValueError with both counts when embeddings and places differ in number, either way round.
    """
    assign = METHODS[method]

    def merge_multimodal_embeddings(
        inputs_embeds: "torch.Tensor", multimodal_embeddings: Any, is_multimodal: "torch.Tensor"
    ) -> "torch.Tensor":
        if len(multimodal_embeddings) == 0:
            return inputs_embeds
        rows = flat(multimodal_embeddings).to(device=inputs_embeds.device, dtype=inputs_embeds.dtype)
        assign(inputs_embeds, is_multimodal, rows)
        return inputs_embeds

    return merge_multimodal_embeddings


def like(original: "Callable[..., torch.Tensor]", method: str) -> "Callable[..., torch.Tensor]":
    """`merge_with(method)` taking its arguments in the order in which `original` does (it changed after vLLM 0.11)."""
    names, ours = inspect.signature(original), merge_with(method)

    @functools.wraps(original)
    def merge_multimodal_embeddings(*args: Any, **kwargs: Any) -> "torch.Tensor":
        return ours(**names.bind(*args, **kwargs).arguments)

    merge_multimodal_embeddings.__module__ = __name__
    merge_multimodal_embeddings.__qualname__ = "merge_multimodal_embeddings"
    return merge_multimodal_embeddings


def flat(embeddings: Any) -> "torch.Tensor":
    """All embeddings of nested lists as one (N, C) tensor."""
    import torch

    if isinstance(embeddings, torch.Tensor):
        return embeddings.flatten(0, -2)
    return torch.cat([flat(part) for part in embeddings])
