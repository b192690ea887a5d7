"""The model card: every number in it comes from the training record and from the evaluation's result."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAMES = {
    "caption": "caption, exact", "json": "JSON list, exact", "count": "how many shapes",
    "count_color": "how many red shapes", "background": "background colour",
    "where": "where is the red circle", "what_at": "what is at the left",
    "color_of": "colour of the circle", "shape_of": "shape of the red one", "yes_color": "is there a red shape",
    "yes_shape": "is there a circle", "yes_both": "is there a red circle", "relation": "is A left of / above B",
    "has_pair": "two images: which has a red circle", "has_color": "two images: which has a red shape",
    "more": "two images: which has more shapes", "same_background": "two images: same background",
    "describe": "two images: describe one, exact", "no_picture": "no picture: greeting, or a request for one",
}  # fmt: skip
YES_NO = ("yes_color", "yes_shape", "yes_both", "relation")
TWO_IMAGES = ("has_pair", "has_color", "more", "same_background", "describe")


@dataclass(frozen=True)
class Bar:
    name: str
    floor: float | None  # must
    goal: float | None
    value: float
    n: int

    @property
    def met(self) -> bool:
        return self.floor is None or self.value >= self.floor

    def verdict(self) -> str:
        if self.floor is not None and self.value < self.floor:
            return "missed"
        if self.goal is None:
            return "met"
        if self.value >= self.goal:
            return "met, goal met" if self.floor is not None else "goal met"
        return "met, goal missed" if self.floor is not None else "goal missed"


def bars(result: dict[str, Any]) -> list[Bar]:
    """The bars that were set before training, against the measured numbers."""
    questions, drawings = result["questions"], result["drawings"]["all"]

    def asked(name: str, kinds: tuple[str, ...], floor: float | None, goal: float | None) -> Bar:
        cells = [questions[k]["all"] for k in kinds if k in questions]
        n = sum(c["n"] for c in cells)
        return Bar(name, floor, goal, sum(c["n"] * c["right"] for c in cells) / n if n else 0.0, n)

    out = [
        asked("captions exactly right", ("caption",), 0.90, 0.95),
        asked("JSON exactly right", ("json",), 0.90, 0.95),
        asked("count", ("count",), 0.98, None),
        asked("background", ("background",), 0.98, None),
        asked("position", ("where",), 0.98, None),
        asked("colour", ("color_of",), 0.95, None),
        asked("yes/no, all kinds together", YES_NO, None, 0.90),
        *(asked(f"yes/no: {NAMES[k]}", (k,), None, 0.90) for k in YES_NO),
        asked("two images, all kinds together", TWO_IMAGES, None, 0.90),
        *(asked(NAMES[k], (k,), None, 0.90) for k in TWO_IMAGES),
    ]
    n = int(drawings["n"])
    detector = result["detector_on_rendered"]
    return [
        *out,
        Bar("drawings, colours in order", 0.95, None, drawings["colors in order"], n),
        Bar("drawings, right in everything", 0.80, 0.90, drawings["all"], n),
        Bar("detector on rendered scenes", 0.99, None, detector["right"], detector["n"]),
    ]


def bars_met(result: dict[str, Any]) -> bool:
    return all(b.met for b in bars(result))


def percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def rows(lines: list[list[str]]) -> str:
    head, *body = lines
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *body])


def scores(result: dict[str, Any]) -> str:
    """The bars, then every question type and language, then the drawings."""
    lines = [["what", "must", "goal", "measured", "n", "verdict"]]
    lines += [
        [b.name, percent(b.floor), percent(b.goal), percent(b.value), str(b.n), b.verdict()] for b in bars(result)
    ]
    kinds = [["question", "English", "n", "Chinese", "n", "a constant answer would get"]]
    for kind, name in NAMES.items():
        if kind in result["questions"]:
            cells = result["questions"][kind]
            line = [name]
            for lang in ("en", "zh"):
                cell = cells.get(lang)
                line += [percent(cell["right"]), str(cell["n"])] if cell else ["", "0"]
            kinds.append([*line, percent(cells["all"]["constant"])])
    drawings = [["drawings", "n", *[k for k in result["drawings"]["all"] if k != "n"]]]
    for lang, name in (("en", "English captions"), ("zh", "Chinese captions"), ("all", "all")):
        if lang in result["drawings"]:
            cells = result["drawings"][lang]
            drawings.append([name, str(int(cells["n"])), *[percent(v) for k, v in cells.items() if k != "n"]])
    return f"{rows(lines)}\n\n{rows(kinds)}\n\n{rows(drawings)}\n"


def text(checkpoint: Path, result: dict[str, Any]) -> str:
    trained = json.loads((checkpoint / "training.json").read_text(encoding="utf-8"))
    weights = (checkpoint / "model.safetensors").stat().st_size
    how = (
        "questions and captions sent to a served model over HTTP (temperature 0; drawings by its default recipe)"
        if result["how"] == "served"
        else "no server: questions scored teacher-forced in the training forward, drawings by the training sampler"
    )
    missed = [b.name for b in bars(result) if "missed" in b.verdict()]
    wrong = "\n".join(
        f"- {w['kind']}: `{w['question']}` wanted `{w['wanted']}`, said `{w['said']}`"
        for w in result["wrong_examples"][:8]
    )
    return f"""---
license: apache-2.0
language: [en, zh]
---

# ascend-vl demo checkpoint

A model of {trained["parameters"]:,} parameters ({weights / 1e6:.1f} MB, bfloat16) with the architecture and the tensor
names of HiDream-O1-Image: a Qwen3-VL backbone and the nine tensors of a pixel-diffusion head. It was trained from
scratch on {trained["images_seen"]:,} pictures of one or two coloured shapes and knows nothing else. It exists so that
serving, checking and drawing can be tried on a laptop; it says nothing about the quality of any real model.

What it takes: pictures of one or two of {{circle, square, triangle, star}} in eight colours on white, black or gray,
and questions in English or Chinese of the kinds listed below. The processor resizes pictures to between 128x128 and
192x192 pixels of area. The chat template puts pictures before text whatever order they are sent in, because that is the
order it was trained on. What it draws: such a picture, 128x128, from a caption in the form it was trained on.

## Measured

Commit {result["commit"][:12]}, {result["date"]}; {how}
(flash, 28 steps). {result["scenes"]} held-out scenes and {result["pairs"]} held-out pairs, seed {result["seed"]}: every
two-shape combination in them was kept out of training, and so was every pixel. One training seed ({trained["seed"]}),
one run; with n = 500 the standard error at 90 % is 1.3 points.
A question counts as right only if the whole answer is.

{scores(result)}
{"Missed: " + "; ".join(missed) + "." if missed else "Every bar and goal was met."}

{"Wrong answers, the first few:" + chr(10) + chr(10) + wrong if wrong else ""}

## Training

{trained["steps"]} steps, {trained["seconds"] / 60:.0f} minutes on one core of a shared CPU, torch {trained["torch"]};
{trained["drawings_seen"]:,} captions drawn. Recipe: `training/README.md`.
What differs from the 8B model is in `config.json` under `hidream_o1`
(noise scale, sizes, token ids, schedule).
"""
