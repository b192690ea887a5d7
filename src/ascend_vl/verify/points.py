"""Named places inside Qwen3-VL, the same on both sides, where one tensor can be taken during a request's prefill.

`visual.patch_embed`, `visual.blocks.I`, `visual.deepstack_merger_list.J`, `visual.merger`, `embeddings` (what enters
the first text layer), `language_model.layers.I`, `language_model.norm`, `logits` (of the last position).
"""

from collections.abc import Callable
from typing import Any

import torch

from ascend_vl.verify.towers import wrap


def find(model: Any, point: str) -> Any:
    """The module at a place, in Transformers' or vLLM's model."""
    engine = hasattr(model, "visual")
    if point.startswith("visual."):
        return (model if engine else model.model).get_submodule(point)
    text = model.language_model.model if engine else model.model.language_model
    if point == "embeddings":
        return text.layers[0]
    if point == "logits":
        return model.language_model.logits_processor if engine else model.lm_head
    return text.get_submodule(point.removeprefix("language_model."))


class PointWatch:
    """Takes the tensor at one place: rows are patches, visual tokens or prompt tokens; float64 on the CPU.

    With `last_pass` only the last row of the last pass: the position a decode step is at.
    """

    def __init__(self, model: Any, point: str, last_pass: bool = False) -> None:
        self.point = point
        self.last_pass = last_pass
        self._pieces: list[torch.Tensor] = []
        self._undo = wrap(find(model, point), self._around)

    def stop(self) -> None:
        """Leave the module as it was."""
        self._undo()

    def take(self) -> torch.Tensor:
        """(rows, width) of the passes seen so far, and the end of the watch. Raises ValueError when it never ran."""
        self.stop()
        if not self._pieces:
            raise ValueError(f"{self.point} did not run through its module (is the model compiled?)")
        return self._pieces[-1][-1:] if self.last_pass or self.point == "logits" else torch.cat(self._pieces)

    def _around(self, forward: Callable[..., Any], *given: Any, **named: Any) -> Any:
        if self.point == "embeddings":
            entering = named.get("hidden_states", _second_or_first(given))
            self._keep(rows(entering))
            return forward(*given, **named)
        output = forward(*given, **named)
        # The head's logits stand on the first tensor-parallel rank only.
        if output is not None:
            self._keep(rows(stream(output, layer=".layers." in self.point)))
        return output

    def _keep(self, seen: torch.Tensor) -> None:
        self._pieces = [seen] if self.last_pass else [*self._pieces, seen]


def _second_or_first(given: tuple[Any, ...]) -> Any:
    """vLLM's layer takes (positions, hidden states, residual); Transformers' takes hidden states first."""
    floats = [value for value in given if isinstance(value, torch.Tensor) and value.is_floating_point()]
    return floats[0]


def stream(output: Any, layer: bool) -> torch.Tensor:
    """A module's output as one tensor; vLLM's text layers give (hidden states, residual), whose sum is the stream.

    Its last norm gives such a pair too, of which only the first counts.
    """
    if isinstance(output, torch.Tensor):
        return output
    first, second = output[0], output[1] if len(output) > 1 else None
    if layer and isinstance(second, torch.Tensor) and second.shape == first.shape:
        summed: torch.Tensor = first.double().cpu() + second.double().cpu()
        return summed
    return first  # type: ignore[no-any-return]


def rows(tensor: torch.Tensor) -> torch.Tensor:
    """(rows, width) in float64 on the CPU."""
    return tensor.detach().reshape(-1, tensor.shape[-1]).double().cpu()
