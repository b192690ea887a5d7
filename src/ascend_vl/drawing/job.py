"""Everything that decides one picture, as arrays: what the API process sends to the workers, once."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ascend_vl.drawing.pixels import Pixels
from ascend_vl.drawing.recipes import Constants, Recipe, Size
from ascend_vl.drawing.references import References
from ascend_vl.drawing.sequence import UNCONDITIONAL_PROMPT, Branch, Tokenizer, build_branch
from ascend_vl.drawing.sizes import grid

# Above this the workers and the reference would need more than 64 signed bits for seed + 1.
MAX_SEED = 2**63 - 2


@dataclass(frozen=True)
class Conditions:
    """Condition images for the vision tower, before normalisation.

    `patches` (sum of t*h*w, values) uint8 in the processor's order; `grid_thw` (K, 3) in the tower's patches;
    `mean` and `std` per channel, for pixels scaled to 0..1; `merge` is the side of a merged patch.
    """

    patches: NDArray[np.uint8]
    grid_thw: NDArray[np.int64]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    merge: int

    @property
    def grids(self) -> list[tuple[int, int]]:
        """(rows, columns) of merged patches, a picture each."""
        return [(int(h) // self.merge, int(w) // self.merge) for _, h, w in self.grid_thw]


@dataclass(frozen=True)
class Job:
    """One picture. Branch 0 is the prompt; branch 1, with guidance only, the unconditional prompt."""

    width: int
    height: int
    seed: int
    recipe: Recipe
    patch_size: int
    t_eps: float
    branches: tuple[Branch, ...]
    references: tuple[Pixels, ...] = ()
    conditions: Conditions | None = None
    exact: bool = False
    trace_steps: tuple[int, ...] | None = None

    @property
    def target_tokens(self) -> int:
        """N."""
        return (self.width // self.patch_size) * (self.height // self.patch_size)

    @property
    def reference_tokens(self) -> int:
        """R."""
        return sum(p.shape[0] * p.shape[1] for p in self.references) // self.patch_size**2

    @property
    def denoised_tokens(self) -> int:
        """G: rows of a denoising step for one branch (timestep token, target and reference patches)."""
        return 1 + self.target_tokens + self.reference_tokens

    def traces(self, step: int) -> bool:
        """Whether the arrays of this step are kept."""
        return self.trace_steps is not None and step in self.trace_steps


def image_settings(image_processor: Any) -> tuple[tuple[float, ...], tuple[float, ...], int]:
    """(mean, std, merge size) of a Transformers image processor."""
    mean, std = tuple(image_processor.image_mean), tuple(image_processor.image_std)
    return mean, std, int(image_processor.merge_size)


def condition_inputs(image_processor: Any, pictures: Sequence[Pixels]) -> Conditions | None:
    """What the checkpoint's own image processor makes of the condition images; None for no images.

    The processor's pixel limits apply: with the published floor, 192x192 becomes 256x256.
    """
    if not pictures:
        return None
    out = image_processor(
        images=[np.array(p) for p in pictures], do_rescale=False, do_normalize=False, return_tensors="pt"
    )
    patches = np.clip(np.rint(out["pixel_values"].float().numpy()), 0, 255).astype(np.uint8)
    mean, std, merge = image_settings(image_processor)
    return Conditions(patches, out["image_grid_thw"].numpy().astype(np.int64), mean, std, merge)


def normalised(conditions: Conditions) -> NDArray[np.float32]:
    """(patches, values) float32: scaled to 0..1, then mean and std; a patch vector begins with the channel."""
    count, values = conditions.patches.shape
    channels = len(conditions.mean)
    scaled = conditions.patches.reshape(count, channels, values // channels).astype(np.float32) / np.float32(255)
    mean = np.asarray(conditions.mean, dtype=np.float32)[None, :, None]
    std = np.asarray(conditions.std, dtype=np.float32)[None, :, None]
    return ((scaled - mean) / std).reshape(count, values)


def build_job(
    prompt: str,
    size: Size,
    seed: int,
    recipe: Recipe,
    references: References,
    tokenizer: Tokenizer,
    image_processor: Any,
    constants: Constants,
    exact: bool = False,
    trace_steps: Sequence[int] | None = None,
) -> Job:
    """The job of one picture; `size` and `references` come from `references.prepare`. Raises Refusal."""
    patch = constants.patch_size
    conditions = condition_inputs(image_processor, references.conditions)
    grids = [(p.shape[0] // patch, p.shape[1] // patch) for p in references.patches]
    prompts = (prompt, UNCONDITIONAL_PROMPT)[: recipe.branches]
    branches = tuple(
        build_branch(tokenizer, text, grid(*size, constants), grids, conditions.grids if conditions else [], constants)
        for text in prompts
    )
    steps = None if trace_steps is None else tuple(trace_steps)
    width, height = size
    return Job(
        width, height, seed, recipe, patch, constants.t_eps, branches, references.patches, conditions, exact, steps
    )


def to_wire(job: Job) -> dict[str, Any]:
    """Plain values and bytes; nested arrays would cross vLLM's RPC as lists."""
    return {
        "width": job.width,
        "height": job.height,
        "seed": job.seed,
        "recipe": asdict(job.recipe),
        "patch_size": job.patch_size,
        "t_eps": job.t_eps,
        "branches": [
            {"ids": b.input_ids.tobytes(), "positions": b.position_ids.tobytes(), "types": b.token_types.tobytes()}
            for b in job.branches
        ],
        "references": [{"rows": p.shape[0], "columns": p.shape[1], "pixels": p.tobytes()} for p in job.references],
        "conditions": None if job.conditions is None else _conditions_to_wire(job.conditions),
        "exact": job.exact,
        "trace_steps": None if job.trace_steps is None else list(job.trace_steps),
    }


def from_wire(wire: Mapping[str, Any]) -> Job:
    """The inverse of `to_wire`."""
    recipe = dict(wire["recipe"])
    recipe["timesteps"] = None if recipe["timesteps"] is None else tuple(recipe["timesteps"])
    pictures = tuple(
        np.frombuffer(p["pixels"], dtype=np.uint8).reshape(p["rows"], p["columns"], 3) for p in wire["references"]
    )
    steps = wire["trace_steps"]
    return Job(
        width=wire["width"],
        height=wire["height"],
        seed=wire["seed"],
        recipe=Recipe(**recipe),
        patch_size=wire["patch_size"],
        t_eps=wire["t_eps"],
        branches=tuple(_branch_from_wire(b) for b in wire["branches"]),
        references=pictures,
        conditions=None if wire["conditions"] is None else _conditions_from_wire(wire["conditions"]),
        exact=wire["exact"],
        trace_steps=None if steps is None else tuple(steps),
    )


def _branch_from_wire(wire: Mapping[str, bytes]) -> Branch:
    ids = np.frombuffer(wire["ids"], dtype=np.int64)
    positions = np.frombuffer(wire["positions"], dtype=np.int64).reshape(3, -1)
    patches = np.arange(positions.shape[1]) >= len(ids)
    return Branch(ids, positions, np.frombuffer(wire["types"], dtype=np.int64), patches)


def _conditions_to_wire(conditions: Conditions) -> dict[str, Any]:
    return {
        "patches": conditions.patches.tobytes(),
        "grid_thw": conditions.grid_thw.tolist(),
        "mean": list(conditions.mean),
        "std": list(conditions.std),
        "merge": conditions.merge,
    }


def _conditions_from_wire(wire: Mapping[str, Any]) -> Conditions:
    grid_thw = np.asarray(wire["grid_thw"], dtype=np.int64)
    patches = np.frombuffer(wire["patches"], dtype=np.uint8).reshape(int(grid_thw.prod(axis=1).sum()), -1)
    return Conditions(patches, grid_thw, tuple(wire["mean"]), tuple(wire["std"]), wire["merge"])
