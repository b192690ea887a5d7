"""Scores and the model card follow from the marks; the served path asks what the local path scores."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

import pytest

from training import card, evaluate, language, world
from training.evaluate import Case, Mark
from training.model import DemoModel


def test_sheets_hold_held_out_scenes_and_both_languages():
    kinds: dict[str, set[str]] = {"no_picture": {c.lang for c in evaluate.text_sheet("evaluation", 7).cases}}
    for i in range(40):
        for sheet in (evaluate.scene_sheet("evaluation", 7, i), evaluate.pair_sheet("evaluation", 7, i)):
            for case in sheet.cases:
                kinds.setdefault(case.kind, set()).add(case.lang)
    assert kinds.keys() == {*language.LONG, *language.SHORT, *language.PAIR, "no_picture"} == card.NAMES.keys()
    assert all(langs == {"en", "zh"} for langs in kinds.values())
    scenes = [evaluate.drawing_request("evaluation", 7, i)[0] for i in range(60)]
    assert all(world.held_out(s) for s in scenes if len(s.things) == 2)


def test_the_local_path_takes_pictures_pairs_and_bare_text():
    net = DemoModel(seed=1)
    sheets = [evaluate.scene_sheet("evaluation", 7, 0), evaluate.scene_sheet("evaluation", 7, 5),
              evaluate.pair_sheet("evaluation", 7, 2), evaluate.text_sheet("evaluation", 7, 4)]  # fmt: skip
    got = evaluate.answer_locally(net, sheets)
    assert sorted(str(m.case) for m in got) == sorted(str(c) for s in sheets for c in s.cases)
    assert not all(m.right for m in got)


def marks(kind: str, right: int, wrong: int) -> list[Mark]:
    good, bad = Mark(Case(kind, "en", "q", "a"), "a", True), Mark(Case(kind, "zh", "q", "b"), "x", False)
    return [good] * right + [bad] * wrong


def result(**right: float) -> dict:
    questions = evaluate.table(m for k in card.NAMES for m in marks(k, *right.get(k, (100, 0))))
    verdict = {"n": 100.0, "count": 1.0, "background": 1.0, "colors in order": 0.97, "layout": 1.0, "shapes": 0.9}
    verdict["all"] = 0.85
    return {
        "schema": 1, "commit": "0" * 40, "date": "2026-01-01", "how": "served", "seed": 7, "scenes": 100, "pairs": 10,
        "questions": questions, "drawings": {"all": verdict}, "detector_on_rendered": {"n": 100, "right": 1.0},
        "seconds": {"questions": 1, "drawings": 1}, "wrong_examples": [],
    }  # fmt: skip


def test_the_table_counts_by_language_and_shows_the_constant_answer():
    table = evaluate.table(marks("count", 3, 1))
    assert table["count"]["all"] == {"n": 4, "right": 0.75, "constant": 1.0}
    assert table["count"]["zh"]["right"] == 0.0


def test_a_missed_bar_is_named():
    good, bad = result(), result(caption=(89, 11))
    assert card.bars_met(good) and not card.bars_met(bad)
    verdicts = {b.name: b.verdict() for b in card.bars(bad)}
    assert verdicts["captions exactly right"] == "missed"
    assert verdicts["JSON exactly right"] == "met, goal met"
    assert verdicts["drawings, right in everything"] == "met, goal missed"
    assert verdicts["yes/no: is there a circle"] == "goal met"


def test_the_card_is_written_from_the_records(tmp_path):
    record = {
        "parameters": 7_500_000,
        "images_seen": 1000,
        "drawings_seen": 900,
        "steps": 10,
        "seconds": 600,
        "seed": 1,
    }
    record["torch"] = "2.0"
    (tmp_path / "training.json").write_text(json.dumps(record))
    (tmp_path / "model.safetensors").write_bytes(b"0" * 1000)
    text = card.text(tmp_path, result(json=(80, 20)))
    assert "7,500,000" in text and "| JSON exactly right | 90.0 % | 95.0 % | 80.0 % | 100 | missed |" in text
    assert "Missed: JSON exactly right; drawings, right in everything." in text


class Oracle(BaseHTTPRequestHandler):
    """Answers every question right but one kind."""

    answers: ClassVar[dict[str, str]] = {}

    def do_GET(self):
        self.reply({"data": [{"id": "demo"}]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert body["temperature"] == 0 and self.headers["Authorization"] == "Bearer key"
        content = body["messages"][0]["content"]
        assert all(c["image_url"]["url"].startswith("data:image/png;base64,") for c in content[:-1])
        self.reply({"choices": [{"message": {"content": self.answers[content[-1]["text"]]}}]})

    def reply(self, value):
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


def test_a_served_model_is_asked_every_question():
    pytest.importorskip("httpx")
    import asyncio

    sheets = [evaluate.scene_sheet("evaluation", 7, 1), evaluate.pair_sheet("evaluation", 7, 1)]
    cases = [c for s in sheets for c in s.cases]
    Oracle.answers = {c.question: "nonsense" if c.kind == "json" else c.answer for c in cases}
    server = HTTPServer(("127.0.0.1", 0), Oracle)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/v1/"
        got = asyncio.run(evaluate.answer_served(url, sheets, 2, "key", lambda: None))
    finally:
        server.shutdown()
        server.server_close()
    assert [m.case for m in got] == cases
    assert {m.case.kind for m in got if not m.right} == {"json"}
