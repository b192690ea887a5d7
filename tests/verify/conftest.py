"""Recorded runs made by hand, small enough to read."""

import json

import pytest
from PIL import Image

from ascend_vl.verify.capture_images import image_hash
from ascend_vl.verify.runs import Answer, write_run


@pytest.fixture(autouse=True)
def english(monkeypatch):
    """Texts in one language, whatever the machine speaks."""
    monkeypatch.setenv("ASCEND_VL_LANG", "en")


@pytest.fixture
def invoice():
    """invoice("id", text=..., token_ids=...) is an Answer."""
    return _invoice


def _invoice(identifier="invoice", text="The total is 1024.50 due 2024-05-01.", token_ids=(5, 6, 7, 8, 9), **changes):
    """One answer with everything recorded."""
    listed = [[(token, -0.1), (token + 1, -2.5)] for token in token_ids]
    stages = {"grid": [[1, 4, 4]], "prompt_ids": [1, 2, 3]}
    values = {"token_ids": list(token_ids), "logprobs": listed, "stages": stages, "finish_reason": "stop"}
    return Answer(identifier, text, **{**values, **changes})


@pytest.fixture
def make_run(tmp_path):
    """make_run("name", [answers], info=..., prompt=...) writes a RUN with one red picture a case."""

    def make(name, answers, prompt="What does it say?", key_fields=None, **info):
        path = tmp_path / name
        (path / "images").mkdir(parents=True)
        picture = Image.new("RGB", (64, 64), (200, 30, 30))
        digest = image_hash(picture)
        picture.save(path / "images" / f"{digest[:16]}.png")
        cases = []
        for answer in answers:
            answer.stages.setdefault("image_bytes", [digest])
            cases.append(
                {
                    "id": answer.id,
                    "images": [{"file": "a.png", "sha256": "0" * 64}],
                    "prompt": prompt,
                    "max_tokens": 16,
                    "key_fields": key_fields,
                }
            )
        write_run(path, {"name": name, "dtype": "float32", "statuses": ["image answered"], **info}, cases, answers)
        return path

    return make


@pytest.fixture
def make_lines(tmp_path):
    """make_lines("name", [objects]) writes a bare JSONL file."""

    def make(name, values):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values), encoding="utf-8")
        return path

    return make
