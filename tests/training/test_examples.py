"""The demo's pictures and cases."""

import json

from PIL import Image

from training import examples, language, world


def test_pictures_are_held_out_and_cases_point_to_them(tmp_path):
    examples.write(tmp_path)
    for scene in examples.scenes().values():
        assert len(scene.things) == 1 or world.held_out(scene)
    cases = [json.loads(line) for line in (tmp_path / "cases.jsonl").read_text(encoding="utf-8").splitlines()]
    assert 10 <= len(cases) <= 15 and len({c["id"] for c in cases}) == len(cases)
    assert any(len(c["images"]) == 2 for c in cases)
    assert {any("\u4e00" <= ch <= "\u9fff" for ch in c["prompt"]) for c in cases} == {True, False}
    for case in cases:
        assert case["key_fields"] and case["max_tokens"] > 0
        for image in case["images"]:
            with Image.open(tmp_path / image) as picture:
                assert max(picture.size) <= 512


def test_fields_of_a_caption_are_words_of_the_caption():
    found = examples.scenes()
    for case in examples.cases(found):
        if case["id"].startswith("caption"):
            scene = found[case["images"][0].removesuffix(".png")]
            text = language.caption(scene, "zh" if case["id"].endswith("zh") else "en")
            assert all(f["value"] in text for f in case["key_fields"])


def test_writing_twice_gives_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        examples.write(tmp_path / name)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
