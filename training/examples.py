"""The demo's own pictures and questions, from held-out scenes: `python -m training.examples --out DIR`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from PIL import Image

from . import language, world
from .evaluate import CHECKPOINT
from .language import ZH, article, thing_text
from .world import Scene

# what is wanted of each picture: file name, number of shapes, layout of two, background, size
WANTED: tuple[tuple[str, int, str | None, str, tuple[int, int]], ...] = (
    ("one-white", 1, None, "white", (384, 384)),
    ("row-white", 2, "left", "white", (384, 384)),
    ("column-black", 2, "top", "black", (384, 384)),
    ("row-gray", 2, "left", "gray", (512, 384)),
    ("one-black", 1, None, "black", (384, 384)),
    ("column-white", 2, "top", "white", (384, 512)),
)


def scenes() -> dict[str, Scene]:
    """The first held-out scene that fits each wish and whose things differ in colour and shape."""
    found: dict[str, Scene] = {}
    used: set[world.Thing] = set()
    for number, (name, count, first_place, background, _) in enumerate(WANTED):
        rng = world.stream("examples", number)
        while name not in found:
            scene = world.random_scene(rng, "eval", count)
            fits = scene.background == background and (first_place is None or scene.places[0] == first_place)
            distinct = len({t.color for t in scene.things}) == len({t.shape for t in scene.things}) == count
            if fits and distinct and not used & set(scene.things):
                found[name] = scene
                used |= set(scene.things)
    return found


def fields(**values: Any) -> list[dict[str, Any]]:
    return [{"name": k, "value": v} for k, v in values.items()]


def scene_fields(scene: Scene, lang: language.Lang, background: bool) -> list[dict[str, Any]]:
    """Every word that must be in the answer, by thing."""
    out = []
    for i, (t, p) in enumerate(zip(scene.things, scene.places, strict=True), 1):
        values = {f"color {i}": t.color, f"shape {i}": t.shape}
        if lang == "zh" or len(scene.things) == 1 or not background:
            values[f"position {i}"] = p
        out += fields(**{k: language.word(v, lang) for k, v in values.items()})
    return out + (fields(background=language.word(scene.background, lang)) if background else [])


def cases(found: dict[str, Scene]) -> list[dict[str, Any]]:
    """Every kind of question in one language or the other."""
    _, row, column, gray, black, tall = (found[name] for name, *_ in WANTED)

    def case(
        name: str, pictures: str, prompt: str, max_tokens: int, key_fields: list[dict[str, Any]]
    ) -> dict[str, Any]:
        images = [f"{p}.png" for p in pictures.split()]
        return {"id": name, "images": images, "prompt": prompt, "max_tokens": max_tokens, "key_fields": key_fields}

    a, b = row.things
    c, d = tall.things
    g = gray.things[1]
    crossed = world.Thing(c.color, d.shape)
    return [
        case("caption-en", "row-white", "What is in the picture?", 40, scene_fields(row, "en", True)),
        case("caption-zh", "column-black", "描述这张图片", 40, scene_fields(column, "zh", True)),
        case("json-en", "column-black", "List the shapes as JSON", 80, scene_fields(column, "en", False)),
        case("json-zh", "row-gray", "用JSON列出图形", 80, scene_fields(gray, "en", False)),
        case("count-en", "row-gray", "How many shapes are there?", 8, fields(count=2)),
        case("count-zh", "one-white", "有几个图形？", 8, fields(count=1)),
        case("background-en", "row-gray", "What color is the background?", 8, fields(background=gray.background)),
        case("position-zh", "row-gray", f"{thing_text(g, 'zh')}在哪里？", 8, fields(position=ZH[gray.places[1]])),
        case(
            "color-en",
            "one-black",
            f"What color is the {black.things[0].shape}?",
            8,
            fields(color=black.things[0].color),
        ),
        case("color-zh", "row-white", f"{ZH[a.shape]}是什么颜色？", 8, fields(color=ZH[a.color])),
        case("yes-en", "row-white", f"Is there {article(thing_text(b, 'en'))}?", 8, fields(answer="yes")),
        case("no-zh", "column-white", f"有{thing_text(crossed, 'zh')}吗？", 8, fields(answer="没有")),
        case(
            "above-en",
            "column-white",
            f"Is the {thing_text(c, 'en')} above the {thing_text(d, 'en')}?",
            8,
            fields(answer="yes"),
        ),
        case(
            "two-images-en",
            "one-white row-white",
            f"Which image has {article(thing_text(b, 'en'))}?",
            8,
            fields(image="second"),
        ),
        case("two-images-zh", "one-white one-black", "描述第二张图", 40, scene_fields(black, "zh", True)),
    ]


def write(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    found = scenes()
    for number, (name, *_, size) in enumerate(WANTED):
        picture = world.render(found[name], *size, world.stream("example pixels", number), "draw")
        Image.fromarray(picture.pixels).save(out / f"{name}.png", optimize=True)
    lines = [json.dumps(c, ensure_ascii=False) for c in cases(found)]
    (out / "cases.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="training.examples", description=__doc__)
    parser.add_argument("--out", type=Path, default=CHECKPOINT.parent / "pictures")
    args = parser.parse_args(argv)
    write(args.out)
    for name, scene in scenes().items():
        print(f"{name}: {language.caption(scene, 'en')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
