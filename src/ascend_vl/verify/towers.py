"""Watching a vision tower at its own two doors: what enters its first layer, and what it gives out.

The same code watches Transformers' tower and vLLM's, so names and definitions agree by construction. `forward` of two
modules is wrapped on the instance, not hooked: vLLM's compile decorator calls `forward` past any hook.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ascend_vl.verify.summaries import summary


class TowerWatch:
    """Records each call of `visual` until `stop`; nothing is touched before `__init__` or after `stop`."""

    def __init__(self, visual: Any) -> None:
        self.visual = visual
        self.merge = int(visual.spatial_merge_size)
        self.calls: list[dict[str, Any]] = []
        self._entering: list[torch.Tensor] = []
        self._undo = [wrap(visual.patch_embed, self._enter), wrap(visual, self._leave)]

    def stop(self) -> None:
        """Put both `forward`s back."""
        for undo in reversed(self._undo):
            undo()
        self._undo = []

    def take(self) -> list[dict[str, Any]]:
        """The calls since the last `take`: {"grid", "pixel_values", "features", "deepstack"}, CPU, model dtype."""
        calls, self.calls = self.calls, []
        return calls

    def _enter(self, forward: Callable[..., Any], *given: Any, **named: Any) -> Any:
        pixels = given[0] if given else next(iter(named.values()))
        self._entering.append(pixels.detach().to(next(self.visual.parameters()).dtype).cpu())
        return forward(*given, **named)

    def _leave(self, forward: Callable[..., Any], *given: Any, **named: Any) -> Any:
        self._entering.clear()
        output = forward(*given, **named)
        grid = named.get("grid_thw", given[1] if len(given) > 1 else None)
        if grid is None or not self._entering:
            return output
        features, deepstack = split_output(self.visual, output)
        self.calls.append(
            {
                "grid": grid.tolist() if hasattr(grid, "tolist") else [list(row) for row in grid],
                "pixel_values": self._entering[-1],
                "features": features.detach().cpu(),
                "deepstack": [layer.detach().cpu() for layer in deepstack],
            }
        )
        return output


def wrap(module: Any, around: Callable[..., Any]) -> Callable[[], None]:
    """Replace `module.forward` on this instance by around(forward, ...); returns what undoes it."""
    original = module.forward
    had_own = "forward" in vars(module)

    def forward(*given: Any, **named: Any) -> Any:
        return around(original, *given, **named)

    module.forward = forward

    def undo() -> None:
        if had_own:
            module.forward = original
        else:
            del module.forward

    return undo


def split_output(visual: Any, output: Any) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """A tower's output as (features, deepstack layers), each (visual tokens, width).

    Transformers 5 gives an object, 4.57 a pair; vLLM concatenates all along the last axis.
    """
    if isinstance(output, torch.Tensor):
        layers = len(visual.deepstack_visual_indexes)
        pieces = output.reshape(-1, output.shape[-1]).chunk(layers + 1, dim=-1)
        return pieces[0], list(pieces[1:])
    if isinstance(output, tuple):
        return output[0], list(output[1])
    return output.pooler_output, list(output.deepstack_features)


def by_image(call: dict[str, Any], merge: int) -> list[dict[str, Any]]:
    """One call's record cut into its pictures: {"grid": [t, h, w], "pixel_values", "tensors": {name: array}}."""
    patches = [t * h * w for t, h, w in call["grid"]]
    tokens = [count // merge**2 for count in patches]
    pixels = call["pixel_values"].reshape(-1, call["pixel_values"].shape[-1]).split(patches)
    named = {"features": call["features"].split(tokens)}
    named |= {f"deepstack {i}": layer.split(tokens) for i, layer in enumerate(call["deepstack"])}
    return [
        {"grid": grid, "pixel_values": pixels[i], "tensors": {name: parts[i] for name, parts in named.items()}}
        for i, grid in enumerate(call["grid"])
    ]


def distinct(pictures: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The pictures whose pixel values no earlier one has."""
    kept: list[dict[str, Any]] = []
    for picture in pictures:
        if not any(torch.equal(picture["pixel_values"], other["pixel_values"]) for other in kept):
            kept.append(picture)
    return kept


def stages(pictures: list[dict[str, Any]]) -> dict[str, Any]:
    """The recorded stages `grid`, `pixel_values` and `tower` of pictures in request order."""
    return {
        "grid": [picture["grid"] for picture in pictures],
        "pixel_values": [summarise(picture["pixel_values"]) for picture in pictures],
        "tower": [
            {"name": f"image {i}: {name}", **summarise(tensor)}
            for i, picture in enumerate(pictures)
            for name, tensor in picture["tensors"].items()
        ],
    }


def summarise(tensor: torch.Tensor) -> dict[str, Any]:
    """`summaries.summary` of a tensor."""
    return summary(array(tensor), str(tensor.dtype).removeprefix("torch."))


def array(tensor: torch.Tensor) -> Any:
    """A tensor as a float32 NumPy array (exact for 16-bit floats)."""
    return tensor.detach().to("cpu", torch.float32).numpy()


def together_against_alone(visual: Any, pictures: list[dict[str, Any]]) -> dict[str, Any]:
    """Run the tower on each picture alone, on all together, and on all in reverse order; compare bit for bit.

    `pictures` come from `by_image`. The same pass alone, done twice, is the self-agreement. Differences are largest
    absolute values, and relative L2 against the pass alone.
    """
    if not pictures:
        return {"pictures": 0}
    alone = [_run(visual, [picture])[0] for picture in pictures]
    again = [_run(visual, [picture])[0] for picture in pictures]
    together = _run(visual, pictures)
    backwards = _run(visual, pictures[::-1])[::-1]
    return {
        "pictures": len(pictures),
        "device": next(visual.parameters()).device.type,
        "dtype": str(next(visual.parameters()).dtype).removeprefix("torch."),
        "grids": [picture["grid"] for picture in pictures],
        "self_agreement": _difference(alone, again),
        "together": _difference(alone, together),
        "reversed": _difference(alone, backwards),
        "nearest": [_nearest(alone, piece) for piece in together],
    }


@torch.inference_mode()
def _run(visual: Any, pictures: list[dict[str, Any]]) -> list[torch.Tensor]:
    """The tower's whole output (features and deepstack side by side) cut by picture, float64 on the CPU."""
    parameter = next(visual.parameters())
    pixels = torch.cat([picture["pixel_values"] for picture in pictures]).to(parameter.device, parameter.dtype)
    grid = torch.tensor([picture["grid"] for picture in pictures], dtype=torch.int64)
    # Some towers normalise first; what was recorded has been through that, so it must pass unchanged.
    undo = _skip_input_norm(visual)
    try:
        features, deepstack = split_output(visual, visual.forward(pixels, grid_thw=grid))
    finally:
        undo()
    merge = int(visual.spatial_merge_size)
    tokens = [t * h * w // merge**2 for t, h, w in (picture["grid"] for picture in pictures)]
    return [piece.double().cpu() for piece in torch.cat([features, *deepstack], dim=-1).split(tokens)]


def _skip_input_norm(visual: Any) -> Callable[[], None]:
    norm = getattr(visual, "input_norm", None)
    if norm is None:
        return lambda: None
    return wrap(norm, lambda forward, pixels, *rest, **named: pixels)


def _difference(expected: list[torch.Tensor], found: list[torch.Tensor]) -> dict[str, Any]:
    largest = [float((a - b).abs().max()) for a, b in zip(expected, found, strict=True)]
    relative = [float((a - b).norm() / a.norm()) for a, b in zip(expected, found, strict=True)]
    finite = all(np.isfinite(largest))
    return {
        "equal": finite and max(largest) == 0.0,
        "max_abs": max(largest) if finite else None,
        "relative": max(relative) if finite else None,
    }


def _nearest(alone: list[torch.Tensor], piece: torch.Tensor) -> int | None:
    """Index of the picture whose own features are nearest to `piece`: another index means swapped or mixed pictures."""
    same_shape = [(float((other - piece).norm()), i) for i, other in enumerate(alone) if other.shape == piece.shape]
    return min(same_shape)[1] if same_shape else None
