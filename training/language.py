"""What is said about a scene: captions, lists, questions and answers, in English and Chinese."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from .world import BACKGROUNDS, COLORS, SHAPES, Scene, Thing

Lang = Literal["en", "zh"]
LANGS: tuple[Lang, Lang] = ("en", "zh")

ZH = {
    "red": "红色", "green": "绿色", "blue": "蓝色", "yellow": "黄色", "purple": "紫色", "orange": "橙色",
    "cyan": "青色", "pink": "粉色", "white": "白色", "black": "黑色", "gray": "灰色",
    "circle": "圆形", "square": "正方形", "triangle": "三角形", "star": "星形",
    "left": "左边", "right": "右边", "top": "上边", "bottom": "下边", "center": "中间",
    "yes": "是", "no": "不是", "first": "第一张", "second": "第二张", "same": "一样多",
}  # fmt: skip

QA = tuple[str, str]


def word(name: str, lang: Lang) -> str:
    return ZH[name] if lang == "zh" else name


def article(noun: str) -> str:
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def thing_text(thing: Thing, lang: Lang) -> str:
    return ZH[thing.color] + ZH[thing.shape] if lang == "zh" else f"{thing.color} {thing.shape}"


def caption(scene: Scene, lang: Lang) -> str:
    if lang == "zh":
        parts = [f"{ZH[p]}一个{thing_text(t, 'zh')}" for t, p in zip(scene.things, scene.places, strict=True)]
        return f"{ZH[scene.background]}背景，" + "，".join(parts)
    ending = f" on a {scene.background} background"
    names = [article(thing_text(t, "en")) for t in scene.things]
    if len(names) == 1:
        return f"{names[0]} at the {scene.places[0]}{ending}"
    return f"{names[0]} {'to the left of' if scene.places[0] == 'left' else 'above'} {names[1]}{ending}"


def listing(scene: Scene) -> str:
    items = [
        {"shape": t.shape, "color": t.color, "position": p} for t, p in zip(scene.things, scene.places, strict=True)
    ]
    return json.dumps(items, separators=(",", ":"))


def pick(rng: np.random.Generator, options: list) -> object:
    return options[rng.integers(len(options))]


def say(rng: np.random.Generator, lang: Lang, en: list[str], zh: list[str]) -> str:
    """One of the phrasings; English sometimes with a capital letter or British spelling, any with its mark left out."""
    text = str(pick(rng, zh if lang == "zh" else en))
    if lang == "en":
        if rng.random() < 0.2:
            text = text.replace("color", "colour")
        if rng.random() < 0.5:
            text = text[0].upper() + text[1:]
    if rng.random() < 0.1:
        text = text.rstrip("?？.。")
    return text


def unique(values: list[str]) -> list[str]:
    return [v for v in values if values.count(v) == 1]


def _caption(scene: Scene, lang: Lang, rng: np.random.Generator) -> QA:
    q = say(
        rng,
        lang,
        ["describe the picture", "describe the image.", "what is in the picture?", "what is in the image?"],
        ["描述这张图片", "描述图片。", "图片里有什么？", "这张图里有什么？"],
    )
    return q, caption(scene, lang)


def _json(scene: Scene, lang: Lang, rng: np.random.Generator) -> QA:
    q = say(
        rng,
        lang,
        ["list the shapes as JSON", "give the shapes as a JSON list."],
        ["用JSON列出图形", "用JSON列出图片里的图形。"],
    )
    return q, listing(scene)


def _count(scene: Scene, lang: Lang, rng: np.random.Generator) -> QA:
    en = ["how many shapes are there?", "how many shapes are in the picture?"]
    return say(rng, lang, en, ["有几个图形？", "图片里有几个图形？"]), str(len(scene.things))


def _count_color(scene: Scene, lang: Lang, rng: np.random.Generator) -> QA:
    colors = [t.color for t in scene.things]
    color = str(pick(rng, colors) if rng.random() < 0.65 else pick(rng, list(COLORS)))
    q = say(rng, lang, [f"how many {color} shapes are there?"], [f"有几个{ZH[color]}的图形？"])
    return q, str(colors.count(color))


def _background(scene: Scene, lang: Lang, rng: np.random.Generator) -> QA:
    en = ["what color is the background?", "what is the background color?"]
    return say(rng, lang, en, ["背景是什么颜色？"]), word(scene.background, lang)


def _color_of(scene: Scene, lang: Lang, rng: np.random.Generator) -> QA | None:
    shapes = unique([t.shape for t in scene.things])
    if not shapes:
        return None
    shape = str(pick(rng, shapes))
    q = say(rng, lang, [f"what color is the {shape}?"], [f"{ZH[shape]}是什么颜色？"])
    return q, word(next(t.color for t in scene.things if t.shape == shape), lang)


def _shape_of(scene: Scene, lang: Lang, rng: np.random.Generator) -> QA | None:
    colors = unique([t.color for t in scene.things])
    if not colors:
        return None
    color = str(pick(rng, colors))
    q = say(rng, lang, [f"what shape is {color}?", f"what shape is the {color} one?"], [f"{ZH[color]}的是什么形状？"])
    return q, word(next(t.shape for t in scene.things if t.color == color), lang)


def _where(scene: Scene, lang: Lang, rng: np.random.Generator) -> QA | None:
    if len(set(scene.things)) < len(scene.things):
        return None
    i = int(rng.integers(len(scene.things)))
    thing = scene.things[i]
    name_en, name_zh = thing_text(thing, "en"), thing_text(thing, "zh")
    if thing.shape in unique([t.shape for t in scene.things]) and rng.random() < 0.4:
        name_en, name_zh = thing.shape, ZH[thing.shape]
    return say(rng, lang, [f"where is the {name_en}?"], [f"{name_zh}在哪里？"]), word(scene.places[i], lang)


def _what_at(scene: Scene, lang: Lang, rng: np.random.Generator) -> QA:
    i = int(rng.integers(len(scene.things)))
    q = say(rng, lang, [f"what is at the {scene.places[i]}?"], [f"{ZH[scene.places[i]]}是什么？"])
    text = thing_text(scene.things[i], lang)
    return q, text if lang == "zh" else article(text)


def _yes_no(rng: np.random.Generator, lang: Lang, noun_en: str, noun_zh: str, yes: bool) -> QA:
    q = say(rng, lang, [f"is there {article(noun_en)}?"], [f"有{noun_zh}吗？"])
    return q, (("有" if yes else "没有") if lang == "zh" else ("yes" if yes else "no"))


def _yes_color(scene: Scene, lang: Lang, rng: np.random.Generator) -> QA:
    present = [t.color for t in scene.things]
    yes = bool(rng.random() < 0.5)
    color = str(pick(rng, present if yes else [c for c in COLORS if c not in present]))
    return _yes_no(rng, lang, f"{color} shape", f"{ZH[color]}的图形", yes)


def _yes_shape(scene: Scene, lang: Lang, rng: np.random.Generator) -> QA:
    present = [t.shape for t in scene.things]
    yes = bool(rng.random() < 0.5)
    shape = str(pick(rng, present if yes else [s for s in SHAPES if s not in present]))
    return _yes_no(rng, lang, shape, ZH[shape], yes)


def near_miss(scene: Scene, rng: np.random.Generator) -> Thing:
    """A thing that is not there: colours and shapes of two things crossed, or one attribute of a thing changed."""
    crossed = [Thing(a.color, b.shape) for a in scene.things for b in scene.things]
    crossed = [t for t in crossed if t not in scene.things]
    if crossed and rng.random() < 0.5:
        return crossed[rng.integers(len(crossed))]
    base = scene.things[rng.integers(len(scene.things))]
    options = [Thing(base.color, s) for s in SHAPES] if rng.random() < 0.5 else [Thing(c, base.shape) for c in COLORS]
    options = [t for t in options if t not in scene.things]
    return options[rng.integers(len(options))]


def _yes_both(scene: Scene, lang: Lang, rng: np.random.Generator) -> QA:
    yes = bool(rng.random() < 0.5)
    thing = scene.things[rng.integers(len(scene.things))] if yes else near_miss(scene, rng)
    return _yes_no(rng, lang, thing_text(thing, "en"), thing_text(thing, "zh"), yes)


def _relation(scene: Scene, lang: Lang, rng: np.random.Generator) -> QA | None:
    if len(scene.things) < 2 or scene.things[0] == scene.things[1]:
        return None
    row, yes = scene.places[0] == "left", bool(rng.random() < 0.5)
    a, b = scene.things
    forward = bool(rng.random() < 0.5)  # ask with the left/upper word or with the right/lower one
    if forward != yes:
        a, b = b, a
    en_word = ("to the left of" if forward else "to the right of") if row else ("above" if forward else "below")
    zh_word = ("左边" if forward else "右边") if row else ("上边" if forward else "下边")
    q = say(
        rng,
        lang,
        [f"is the {thing_text(a, 'en')} {en_word} the {thing_text(b, 'en')}?"],
        [f"{thing_text(a, 'zh')}在{thing_text(b, 'zh')}的{zh_word}吗？"],
    )
    return q, word("yes" if yes else "no", lang)


SceneQuestion = Callable[[Scene, Lang, np.random.Generator], QA | None]
LONG: dict[str, SceneQuestion] = {"caption": _caption, "json": _json}
SHORT: dict[str, SceneQuestion] = {
    "count": _count,
    "count_color": _count_color,
    "background": _background,
    "color_of": _color_of,
    "shape_of": _shape_of,
    "where": _where,
    "what_at": _what_at,
    "yes_color": _yes_color,
    "yes_shape": _yes_shape,
    "yes_both": _yes_both,
    "relation": _relation,
}
SHORT_WEIGHTS = {
    "count": 0.05, "count_color": 0.05, "background": 0.05, "color_of": 0.10, "shape_of": 0.11, "where": 0.07,
    "what_at": 0.05, "yes_color": 0.04, "yes_shape": 0.13, "yes_both": 0.23, "relation": 0.12,
}  # fmt: skip
# once shapes and colours are known: more of what needs a place found
LATE_SHORT_WEIGHTS = {
    "count": 0.05, "count_color": 0.06, "background": 0.03, "color_of": 0.15, "shape_of": 0.05, "where": 0.20,
    "what_at": 0.06, "yes_color": 0.03, "yes_shape": 0.05, "yes_both": 0.12, "relation": 0.20,
}  # fmt: skip


def _which(rng: np.random.Generator, lang: Lang, en: str, zh: str, answer: str) -> QA:
    return say(rng, lang, [f"which image has {en}?"], [f"哪张图有{zh}？"]), word(answer, lang)


def _has_pair(scenes: tuple[Scene, Scene], lang: Lang, rng: np.random.Generator) -> QA | None:
    i = int(rng.integers(2))
    options = [t for t in scenes[i].things if t not in scenes[1 - i].things]
    if not options:
        return None
    t = options[rng.integers(len(options))]
    return _which(rng, lang, article(thing_text(t, "en")), thing_text(t, "zh"), ("first", "second")[i])


def _has_color(scenes: tuple[Scene, Scene], lang: Lang, rng: np.random.Generator) -> QA | None:
    i = int(rng.integers(2))
    other = {t.color for t in scenes[1 - i].things}
    options = [t.color for t in scenes[i].things if t.color not in other]
    if not options:
        return None
    c = str(pick(rng, options))
    return _which(rng, lang, article(f"{c} shape"), f"{ZH[c]}的图形", ("first", "second")[i])


def _more(scenes: tuple[Scene, Scene], lang: Lang, rng: np.random.Generator) -> QA:
    a, b = (len(s.things) for s in scenes)
    answer = "same" if a == b else ("first" if a > b else "second")
    return say(rng, lang, ["which image has more shapes?"], ["哪张图的图形更多？"]), word(answer, lang)


def _same_background(scenes: tuple[Scene, Scene], lang: Lang, rng: np.random.Generator) -> QA:
    same = scenes[0].background == scenes[1].background
    q = say(rng, lang, ["do both images have the same background?"], ["两张图的背景一样吗？"])
    return q, ("一样" if same else "不一样") if lang == "zh" else ("yes" if same else "no")


def _describe(scenes: tuple[Scene, Scene], lang: Lang, rng: np.random.Generator) -> QA:
    i = int(rng.random() < 0.7)
    en, zh = ("first", "second")[i], ("第一张", "第二张")[i]
    return say(rng, lang, [f"describe the {en} image"], [f"描述{zh}图"]), caption(scenes[i], lang)


PairQuestion = Callable[[tuple[Scene, Scene], Lang, np.random.Generator], QA | None]
PAIR: dict[str, PairQuestion] = {
    "has_pair": _has_pair,
    "has_color": _has_color,
    "more": _more,
    "same_background": _same_background,
    "describe": _describe,
}
PAIR_WEIGHTS = {"has_pair": 0.32, "has_color": 0.12, "more": 0.22, "same_background": 0.14, "describe": 0.20}
LATE_PAIR_WEIGHTS = {"has_pair": 0.32, "has_color": 0.24, "more": 0.20, "same_background": 0.06, "describe": 0.18}


def random_pair(rng: np.random.Generator, make: Callable[[], Scene]) -> tuple[Scene, Scene]:
    """Two scenes; half of them share the background, so that comparing is not trivial."""
    a, b = make(), make()
    if rng.random() < 0.25:
        b = Scene(b.things, b.places, a.background)
    return a, b


def ask_short(scene: Scene, lang: Lang, rng: np.random.Generator, late: bool = False) -> tuple[str, QA]:
    return _draw(SHORT, LATE_SHORT_WEIGHTS if late else SHORT_WEIGHTS, scene, lang, rng)


def ask_pair(scenes: tuple[Scene, Scene], lang: Lang, rng: np.random.Generator, late: bool = False) -> tuple[str, QA]:
    return _draw(PAIR, LATE_PAIR_WEIGHTS if late else PAIR_WEIGHTS, scenes, lang, rng)


def _draw(
    table: dict, weights: dict[str, float], subject: object, lang: Lang, rng: np.random.Generator
) -> tuple[str, QA]:
    kinds, probabilities = list(weights), np.array(list(weights.values()))
    while True:
        kind = kinds[int(rng.choice(len(kinds), p=probabilities / probabilities.sum()))]
        qa = table[kind](subject, lang, rng)
        if qa is not None:
            return kind, qa


@dataclass(frozen=True)
class Mention:
    """A thing that a question names: where its name ends, its place (None if two fit) and the picture it is in."""

    end: int
    place: str | None
    picture: int


POINTING = ("where", "relation", "color_of", "shape_of", "has_pair", "has_color")  # every thing these name is there


def mentions(question: str, lang: Lang, scenes: tuple[Scene, ...]) -> list[Mention]:
    text = question.lower()
    placed = [(t, p, i) for i, s in enumerate(scenes) for t, p in zip(s.things, s.places, strict=True)]
    names: dict[str, list[tuple[str, int]]] = {}
    for thing, place, i in placed:
        names.setdefault(thing_text(thing, lang), []).append((place, i))
    if not any(name in text for name in names):
        names = {}
        for thing, place, i in placed:
            for part in (thing.color, thing.shape):
                names.setdefault(word(part, lang), []).append((place, i))
    out = []
    for name, owners in names.items():
        places, pictures = {p for p, _ in owners}, {i for _, i in owners}
        if name in text and len(pictures) == 1:
            only = owners[0][0] if len(places) == 1 else None
            out.append(Mention(text.index(name) + len(name), only, owners[0][1]))
    return out


HELLO = {
    "en": "hello! send me a picture and ask about its shapes and colors.",
    "zh": "你好！发一张图片给我，问我里面的图形和颜色。",
}
NO_PICTURE = {"en": "please send a picture first.", "zh": "请先发一张图片。"}
HELLO_QUESTIONS: dict[Lang, list[str]] = {
    "en": ["hello", "hi", "hey", "hello!", "hi there", "good morning", "who are you?", "what can you do?", "help",
           "what is this?", "what are you?", "thank you", "are you ready?", "how are you?"],
    "zh": ["你好", "您好", "你好！", "嗨", "早上好", "你是谁？", "你能做什么？", "你会什么？", "帮助", "谢谢"],
}  # fmt: skip


def ask_without_picture(lang: Lang, rng: np.random.Generator, make: Callable[[], Scene]) -> QA:
    """Text alone: a greeting gets a greeting, a question about a picture gets a request for one."""
    if rng.random() < 0.5:
        q = str(pick(rng, HELLO_QUESTIONS[lang]))
        if lang == "en" and rng.random() < 0.5:
            q = q[0].upper() + q[1:]
        return q, HELLO[lang]
    table: dict[str, SceneQuestion] = {**LONG, **SHORT}
    qa = None
    while qa is None:
        qa = table[str(pick(rng, list(table)))](make(), lang, rng)
    return qa[0], NO_PICTURE[lang]


def drawing_prompt(scene: Scene, lang: Lang, rng: np.random.Generator) -> str:
    """The caption as a user would type it: sometimes with a capital letter or a verb in front."""
    text = caption(scene, lang)
    if rng.random() < 0.15:
        return ("画一张图：" if lang == "zh" else str(pick(rng, ["draw ", "Draw "]))) + text
    return text[0].upper() + text[1:] if lang == "en" and rng.random() < 0.2 else text


def short_drawing_prompt(scene: Scene, lang: Lang) -> tuple[str, Scene]:
    """Place and background left unsaid: they are then the center (or a row) and white."""
    if len(scene.things) == 1:
        full = Scene(scene.things, ("center",), "white")
        name = thing_text(scene.things[0], lang)
        return (f"一个{name}" if lang == "zh" else article(name)), full
    full = Scene(scene.things, ("left", "right"), "white")
    a, b = (thing_text(t, lang) for t in scene.things)
    return (f"一个{a}和一个{b}" if lang == "zh" else f"{article(a)} and {article(b)}"), full


def lexicon() -> list[str]:
    """Chinese words as the tokenizer should learn them (Chinese text has no spaces to learn them from)."""
    words = (
        "背景 一个 图形 图片 形状 颜色 什么 哪里 哪张 描述 列出 几个 里有 有 没有 是 不是 一样 不一样 一样多 更多 "
        "两张 第一张 第二张 这张图 在 的 吗 用 和 图 里 张 画一 你好 您好 发一张 给我 问我 里面 请先 请 早上好 "
        "你是谁 你能做 你会 帮助 谢谢 ， ？ 。 ！ ："
    )
    return [*ZH.values(), *words.split()]


def vocabulary() -> list[str]:
    return [*SHAPES, *COLORS, *BACKGROUNDS]
