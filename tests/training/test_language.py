"""Questions have one right answer, yes is as common as no, and the tokenizer keeps every text."""

import json
from collections import Counter

import pytest

from training import language, tokenizer, world
from training.world import Scene, Thing

RED_BLUE = Scene((Thing("red", "circle"), Thing("blue", "star")), ("left", "right"), "black")
ORANGE = Scene((Thing("orange", "square"),), ("center",), "white")


def test_captions_and_lists():
    assert language.caption(RED_BLUE, "en") == "a red circle to the left of a blue star on a black background"
    assert language.caption(ORANGE, "en") == "an orange square at the center on a white background"
    assert language.caption(RED_BLUE, "zh") == "黑色背景，左边一个红色圆形，右边一个蓝色星形"
    assert language.listing(ORANGE) == '[{"shape":"square","color":"orange","position":"center"}]'
    above = Scene(RED_BLUE.things, ("top", "bottom"), "gray")
    assert language.caption(above, "en") == "a red circle above a blue star on a gray background"
    assert [i["position"] for i in json.loads(language.listing(above))] == ["top", "bottom"]


def test_a_caption_names_exactly_one_scene():
    rng = world.stream("test captions", 0)
    for lang in language.LANGS:
        texts: dict[str, Scene] = {}
        for _ in range(3000):
            scene = world.random_scene(rng, "train")
            assert texts.setdefault(language.caption(scene, lang), scene) == scene


@pytest.mark.parametrize("lang", language.LANGS)
@pytest.mark.parametrize("kind", ["yes_color", "yes_shape", "yes_both", "relation"])
def test_yes_is_as_common_as_no(kind, lang):
    rng, answers = world.stream("test balance", 0), Counter()
    while answers.total() < 1500:
        qa = language.SHORT[kind](world.random_scene(rng, "train"), lang, rng)
        if qa is not None:
            answers[qa[1]] += 1
    assert len(answers) == 2 and all(0.45 < n / 1500 < 0.55 for n in answers.values())


def test_near_misses_are_absent_and_relations_are_true():
    rng = world.stream("test truth", 0)
    words = {"to the left of": ("left", 0), "to the right of": ("left", 1), "above": ("top", 0), "below": ("top", 1)}
    for _ in range(800):
        scene = world.random_scene(rng, "train", 2)
        assert language.near_miss(scene, rng) not in scene.things
        qa = language.SHORT["relation"](scene, "en", rng)
        if qa is None:
            assert scene.things[0] == scene.things[1]
            continue
        question, answer = qa
        phrase = next(w for w in words if f" {w} " in question)
        first = question.lower().removeprefix("is the ").split(f" {phrase} ")[0]
        place, index = words[phrase]
        assert scene.places[0] == place
        assert (answer == "yes") == (first == language.thing_text(scene.things[index], "en"))


def test_two_image_answers_are_true():
    pair = (RED_BLUE, ORANGE)
    rng = world.stream("test two", 0)
    for _ in range(50):
        question, answer = language.PAIR["has_color"](pair, "en", rng)
        assert (answer == "second") == ("orange" in question)
        assert language.PAIR["more"](pair, "en", rng)[1] == "first"
        assert language.PAIR["more"](pair, "zh", rng)[1] == "第一张"
        assert language.PAIR["same_background"](pair, "en", rng)[1] == "no"
        question, answer = language.PAIR["describe"](pair, "en", rng)
        assert answer == language.caption(pair[1 if "second" in question else 0], "en")


def test_unsaid_place_and_background_are_the_center_and_white():
    prompt, scene = language.short_drawing_prompt(Scene(ORANGE.things, ("left",), "black"), "en")
    assert (prompt, scene) == ("an orange square", ORANGE)


def test_every_generated_text_survives_the_tokenizer():
    tok, rng = tokenizer.shared(), world.stream("test tokens", 0)
    texts = ["Zażółć gęślą jaźń 🙂 12345\n\ttabs", "任意的中文，没有见过。", *language.HELLO.values()]
    for _ in range(100):
        scene, lang = world.random_scene(rng, "eval"), language.LANGS[int(rng.integers(2))]
        texts += [language.caption(scene, lang), language.listing(scene), *language.ask_short(scene, lang, rng)[1]]
    for text in texts:
        assert tok.decode(tok.encode(text).ids) == text


def test_special_tokens_follow_the_merges_in_the_published_order():
    tok = tokenizer.shared()
    assert tok.get_vocab_size() == tokenizer.VOCAB_SIZE
    first = tokenizer.VOCAB_SIZE - len(tokenizer.SPECIALS)
    for i, name in enumerate(tokenizer.SPECIALS):
        assert tok.encode(name).ids == [first + i] == [tokenizer.token(name)]
    assert tokenizer.build().to_str() == tok.to_str()


def test_an_answer_is_few_tokens():
    assert len(tokenizer.shared().encode(language.caption(RED_BLUE, "en")).ids) <= 15
    assert len(tokenizer.shared().encode(language.caption(RED_BLUE, "zh")).ids) <= 14


def test_a_question_names_things_that_are_there():
    where = language.mentions("where is the blue star?", "en", (RED_BLUE,))
    assert [(m.place, m.picture) for m in where] == [("right", 0)]
    assert "where is the blue star?"[: where[0].end].endswith("blue star")
    both = language.mentions("红色圆形在蓝色星形的左边吗？", "zh", (RED_BLUE,))
    assert [m.place for m in both] == ["left", "right"]
    assert [m.picture for m in language.mentions("which image has an orange shape?", "en", (RED_BLUE, ORANGE))] == [1]
    twice = Scene((Thing("red", "circle"), Thing("red", "star")), ("left", "right"), "black")
    assert [m.place for m in language.mentions("which image has a red shape?", "en", (ORANGE, twice))] == [None]
    rng, lengths = world.stream("test mentions", 0), set()
    for _ in range(300):
        scene, lang = world.random_scene(rng, "train"), language.LANGS[int(rng.integers(2))]
        kind, (question, _) = language.ask_short(scene, lang, rng)
        if kind in language.POINTING:
            found = language.mentions(question, lang, (scene,))
            lengths.add((kind, len(found)))
    assert lengths == {("where", 1), ("relation", 2), ("color_of", 1), ("shape_of", 1)}
