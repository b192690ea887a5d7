"""Recipes and constants of a drawing: published ones, what a checkpoint says of itself, what a request overrides.

Source of every number: the HiDream-O1-Image reference, branches main and dev (inference.py, models/pipeline.py).
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import Any, Literal

from ascend_vl.drawing.errors import Refusal
from ascend_vl.language import Text

SchedulerName = Literal["unipc", "flash", "flow_match"]
Size = tuple[int, int]

DEV_TIMESTEPS = (
    *(999, 987, 974, 960, 945, 929, 913, 895, 877, 857, 836, 814, 790, 764),
    *(737, 707, 675, 640, 602, 560, 515, 464, 409, 347, 278, 199, 110, 8),
)
# (width, height) as the reference lists them; `--snap` picks from these.
RESOLUTIONS: tuple[Size, ...] = (
    *((2048, 2048), (2304, 1728), (1728, 2304), (2560, 1440), (1440, 2560), (2496, 1664), (1664, 2496)),
    *((3104, 1312), (1312, 3104), (2304, 1792), (1792, 2304)),
)
MAX_STEPS = 200


@dataclass(frozen=True)
class Recipe:
    """How noise becomes a picture.

    `timesteps` is a fixed list in thousandths of sigma, or None where the scheduler computes them from `steps` and
    `shift`. `guidance` above 1 adds the unconditional branch. `noise_scale` multiplies the first noise, and goes
    linearly to `noise_scale_end` for the noise that `flash` adds in each step, clipped at `noise_clip` standard
    deviations (0: not).
    """

    name: str
    scheduler: SchedulerName
    steps: int
    timesteps: tuple[int, ...] | None
    shift: float
    guidance: float
    noise_scale: float
    noise_scale_end: float
    noise_clip: float

    @property
    def branches(self) -> int:
        """2 with guidance, else 1."""
        return 2 if self.guidance > 1.0 else 1

    def noise_scale_at(self, step: int) -> float:
        """Scale of the noise that step `step` adds (flash)."""
        if self.steps == 1:
            return self.noise_scale
        return self.noise_scale + (self.noise_scale_end - self.noise_scale) * step / (self.steps - 1)


FULL = Recipe("full", "unipc", 50, None, 3.0, 5.0, 8.0, 8.0, 0.0)
DEV = Recipe("dev", "flash", 28, DEV_TIMESTEPS, 1.0, 0.0, 7.5, 7.5, 2.5)
DEV_2604 = Recipe("dev-2604", "flash", 28, DEV_TIMESTEPS, 1.0, 0.0, 8.0, 8.0, 8.0)
RECIPES = {recipe.name: recipe for recipe in (FULL, DEV, DEV_2604)}
TASKS = ("image_generation", "image_edit")
# Dev with exactly one reference: Euler, with the first noise of the full model.
EDIT_SCHEDULER: SchedulerName = "flow_match"
EDIT_NOISE_SCALE = 8.0


@dataclass(frozen=True)
class Constants:
    """What training fixed. Sides and sizes in pixels; `condition_sizes` for up to 4, up to 8 and more references."""

    patch_size: int = 32
    fix_point: int = 4096
    t_eps: float = 0.001
    condition_sizes: tuple[int, int, int] = (384, 288, 192)
    boi_token: str = "<|boi_token|>"
    tms_token: str = "<|tms_token|>"
    boi_token_id: int | None = None
    tms_token_id: int | None = 151673
    resolutions: tuple[Size, ...] = RESOLUTIONS
    default_size: Size = (2048, 2048)


@dataclass(frozen=True)
class DrawingConfig:
    """Constants of a checkpoint, its own recipe's name, the recipes it can be asked for, and what it was trained to do:
    `TASKS`, fewer where its files say so.
    """

    constants: Constants = field(default_factory=Constants)
    default_recipe: str = "full"
    recipes: Mapping[str, Recipe] = field(default_factory=lambda: dict(RECIPES))
    edit_noise_scale: float = EDIT_NOISE_SCALE
    tasks: tuple[str, ...] = TASKS

    @classmethod
    def from_checkpoint(cls, config: Mapping[str, Any], name: str = "") -> "DrawingConfig":
        """From config.json and the checkpoint's name.

        The block `hidream_o1`, where there is one, decides. Published checkpoints have none and are told apart by
        name only ("...-Dev-2604", "...-Dev", else full), as their files do not differ in anything but weights.
        """
        block = dict(config.get("hidream_o1") or {})
        if not block:
            return cls(default_recipe=_recipe_of_name(name))
        constants = _constants(block)
        own = str(block.get("recipe") or _recipe_of_name(name))
        base = RECIPES.get(own, FULL)
        recipes = dict(RECIPES)
        scale = block.get("noise_scale")
        if scale is not None:
            # The scale of the noise is a constant of training, so it holds whatever the schedule.
            recipes = {
                n: replace(r, noise_scale=float(scale), noise_scale_end=float(scale)) for n, r in recipes.items()
            }
            base = recipes.get(own, replace(base, noise_scale=float(scale), noise_scale_end=float(scale)))
        recipes[own] = replace(base, name=own, **_recipe_values(block))
        tasks = tuple(task for task in TASKS if task in block.get("tasks", TASKS))
        return cls(constants, own, recipes, float(scale) if scale is not None else EDIT_NOISE_SCALE, tasks)

    def recipe(self, name: str | None, references: int, **overrides: Any) -> Recipe:
        """The recipe `name` (None: the checkpoint's own) for so many references, with the overrides that are not None.

        Raises Refusal for an unknown name or a value out of range.
        """
        chosen = self.recipes.get(name or self.default_recipe)
        if chosen is None:
            known = ", ".join(self.recipes)
            raise Refusal(
                "drawing-recipe",
                Text(f"There is no recipe {name!r}.", f"没有名为 {name!r} 的配方。"),
                Text(f"This checkpoint knows {known}.", f"该权重支持：{known}。"),
                Text("Name one of these, or leave it out.", "请改用其中之一，或不指定。"),
                "recipe",
            )
        if chosen.timesteps is not None and references == 1:
            scale = self.edit_noise_scale
            chosen = replace(chosen, scheduler=EDIT_SCHEDULER, noise_scale=scale, noise_scale_end=scale, noise_clip=0.0)
        return _override(chosen, {key: value for key, value in overrides.items() if value is not None})


def _recipe_of_name(name: str) -> str:
    low = name.lower()
    if re.search(r"(^|[^0-9])2604([^0-9]|$)", low):
        return "dev-2604"
    return "dev" if re.search(r"(^|[^a-z])dev([^a-z]|$)", low) else "full"


def _constants(block: Mapping[str, Any]) -> Constants:
    known = {f.name for f in fields(Constants)}
    values = {key: value for key, value in block.items() if key in known}
    if "resolutions" in values:
        values["resolutions"] = tuple((int(w), int(h)) for w, h in values["resolutions"])
        values.setdefault("default_size", values["resolutions"][0])
    if "condition_sizes" in values:
        values["condition_sizes"] = tuple(values["condition_sizes"])
    return Constants(**values)


def _recipe_values(block: Mapping[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {
        k: block[k] for k in ("scheduler", "steps", "shift", "guidance", "noise_clip") if k in block
    }
    if "timesteps" in block:
        values["timesteps"] = tuple(block["timesteps"]) if block["timesteps"] else None
        if values["timesteps"]:
            values["steps"] = len(values["timesteps"])
    if "noise_scale_end" in block:
        values["noise_scale_end"] = float(block["noise_scale_end"])
    return values


def respaced(timesteps: tuple[int, ...], steps: int) -> tuple[int, ...]:
    """`steps` values along a fixed list, first and last kept, linearly between its entries, strictly falling."""
    if steps == len(timesteps):
        return timesteps
    if steps == 1:
        return timesteps[:1]
    out: list[int] = []
    for i in range(steps):
        at = i * (len(timesteps) - 1) / (steps - 1)
        low = min(int(at), len(timesteps) - 2)
        out.append(round(timesteps[low] + (at - low) * (timesteps[low + 1] - timesteps[low])))
    return tuple(out)


def _override(recipe: Recipe, values: dict[str, Any]) -> Recipe:
    for key in ("shift", "guidance", "noise_scale", "noise_scale_end", "noise_clip"):
        if key in values and not (math.isfinite(float(values[key])) and 0.0 <= float(values[key]) <= 1000.0):
            raise _out_of_range(key, values[key], "0..1000")
    if "shift" in values and float(values["shift"]) <= 0:
        raise _out_of_range("shift", values["shift"], "> 0")
    if "scheduler" in values and values["scheduler"] not in ("unipc", "flash", "flow_match"):
        raise _out_of_range("scheduler", values["scheduler"], "unipc, flash, flow_match")
    given = values
    if "timesteps" in values:
        listed = tuple(int(t) for t in values["timesteps"])
        falling = bool(listed) and all(a > b for a, b in pairwise(listed))
        if not falling or listed[-1] < 1 or listed[0] > 1000 or len(listed) > MAX_STEPS:
            raise _out_of_range("timesteps", list(listed), Text("falling, within 1..1000", "递减，且在 1..1000 内"))
        if values.get("steps", len(listed)) != len(listed):
            raise _out_of_range("steps", values["steps"], f"{len(listed)}, timesteps")
        values = {**values, "timesteps": listed, "steps": len(listed)}
    elif "steps" in values:
        steps = int(values["steps"])
        if not 1 <= steps <= MAX_STEPS:
            raise _out_of_range("steps", steps, f"1..{MAX_STEPS}")
        scheduler = values.get("scheduler", recipe.scheduler)
        listed_or_none = None if scheduler == "unipc" else respaced(recipe.timesteps or DEV_TIMESTEPS, steps)
        values = {**values, "timesteps": listed_or_none}
    if "noise_scale" in values:
        values = {"noise_scale_end": values["noise_scale"], **values}
    changed = replace(recipe, **values)
    if changed.scheduler == "unipc" and changed.timesteps is not None and not values.get("timesteps"):
        changed = replace(changed, timesteps=None)
    if changed.scheduler != "unipc" and changed.timesteps is None:
        changed = replace(changed, timesteps=respaced(DEV_TIMESTEPS, changed.steps))
    _check_used(given, changed)
    return changed


def _check_used(given: Mapping[str, Any], recipe: Recipe) -> None:
    """Raises Refusal for a constant that would change nothing: a shift of a fixed list, noise that is never added."""
    # Each with the value that says the same as leaving it out.
    unused = {"shift": 1.0} if recipe.timesteps is not None else {}
    if recipe.scheduler != "flash":
        unused |= {"noise_scale_end": recipe.noise_scale, "noise_clip": 0.0}
    for name, neutral in unused.items():
        if given.get(name, neutral) != neutral:
            raise Refusal(
                "drawing-unused",
                Text(f"{name} would change nothing here.", f"{name} 在此不起作用。"),
                Text(
                    "shift belongs to unipc without timesteps; noise_scale_end and noise_clip belong to flash.",
                    "shift 仅用于未指定 timesteps 的 unipc；noise_scale_end 和 noise_clip 仅用于 flash。",
                ),
                Text("Leave it out, or choose another scheduler.", "请去掉它，或选择其他 scheduler。"),
                name,
            )


def _out_of_range(field_name: str, value: object, allowed: str | Text) -> Refusal:
    pair = allowed if isinstance(allowed, Text) else Text(allowed, allowed)
    shown = "guidance_scale" if field_name == "guidance" else field_name
    return Refusal(
        "drawing-range",
        Text(f"{shown} is {value!r}.", f"{shown} 为 {value!r}。"),
        Text(f"Allowed: {pair.en}.", f"允许范围：{pair.zh}。"),
        Text("Give a value in that range, or leave it out.", "请给出范围内的值，或不指定。"),
        shown,
    )
