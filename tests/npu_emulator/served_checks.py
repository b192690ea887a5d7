"""What a served model is asked on the emulator. Each check raises AssertionError, or returns the numbers it saw."""

import base64
import json
import re
import tempfile
import threading
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from PIL import Image
from served import Reference, Served, answer_of, data_url, picture, same_until_a_tie

# Largest difference of a log-probability between two float16 computations of the peaked checkpoint; 0.05 was seen.
LOGPROB = 0.12
# The same where activations are int8.
QUANTISED = 1.0
IN_FORCE = ("active", "unprobed", "forced")
QUESTIONS: dict[str, list[Image.Image]] = {
    "say hello": [],
    "what is this": [picture(0, 96, 64)],
    "compare": [picture(0, 96, 64), picture(1, 64, 96)],
}
LARGE = (1280, 720)
TOOL = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "integer"}}}},
}
# On one line: vLLM 0.18 writes a choice's line breaks unescaped into its grammar, which ends there.
CALL = '<tool_call>{"name": "look", "arguments": {"at": 7}}</tool_call>'
# Requests of the ramp, by number of clients: beyond what is computed together, they wait.
RAMP = (1, 4, 16, 32)


def adaptations(served: Served, ranks: int) -> list[dict[str, str]]:
    """State by id of every adaptation, for each worker of `/v1/ascend_vl/status`; the plugin is active in all."""
    workers = served.get("/v1/ascend_vl/status").json()["workers"]
    assert [worker["rank"] for worker in workers] == list(range(ranks)), workers
    assert all(worker["plugin"] for worker in workers)
    return [{outcome["id"]: outcome["state"] for outcome in worker["adaptations"]} for worker in workers]


def in_force(states: dict[str, str]) -> set[str]:
    return {name for name, state in states.items() if state in IN_FORCE}


def answers(served: Served, reference: Reference, largest: float = LOGPROB, questions: Any = None) -> dict[str, Any]:
    """Text, one and two pictures against Transformers in the same dtype."""
    total: dict[str, Any] = {"decidable": 0, "wrong": 0, "largest": 0.0}
    for question, pictures in (questions or QUESTIONS).items():
        verdict = reference.judge(question, pictures, answer_of(served.ask(question, pictures, tokens=12)))
        total["decidable"] += verdict["decidable"]
        total["wrong"] += verdict["wrong"]
        total["largest"] = max(total["largest"], verdict["largest"])
    assert total["decidable"] >= 10, total
    assert total["wrong"] == 0, total
    assert total["largest"] < largest, total
    return total


def near(served: Served, reference: Reference) -> dict[str, Any]:
    """Quantised activations: log-probabilities near those of the rounded weights, choices equal where they lead."""
    total = {"wrong": 0, "largest": 0.0, "decidable": 0}
    for question, pictures in QUESTIONS.items():
        answer = answer_of(served.ask(question, pictures, tokens=12))
        verdict = reference.judge(question, pictures, answer, margin=QUANTISED)
        total = {
            name: max(value, verdict[name]) if name == "largest" else value + verdict[name]
            for name, value in total.items()
        }
    assert total["wrong"] == 0 and 0 < total["largest"] < QUANTISED, total
    return total


def graphs_replayed(served: Served) -> dict[str, Any]:
    """The log says that graphs were captured and replayed."""
    log = served.log
    assert "Replaying aclgraph" in log, log[-2000:]
    return {"captured": log.count("Capturing"), "replayed": True}


def encoded(served: Served, pictures: Sequence[Image.Image], question: str = "describe") -> tuple[list[str], Any]:
    """What the tower made of each picture of one request, as text to compare, and the answer.

    The pictures are marked as never seen, so that the encoder cache does not answer.
    """
    parts = [{"type": "image_url", "image_url": {"url": data_url(one)}, "uuid": uuid.uuid4().hex} for one in pictures]
    content = [*parts, {"type": "text", "text": question}]
    answer = answer_of(served.ask(question, messages=[{"role": "user", "content": content}]))
    stages = served.capture("ascend_vl_capture_take", "", "")
    assert len(stages["grid"]) == len(pictures), stages["grid"]
    towers: list[list[Any]] = [[] for _ in pictures]
    for entry in stages["tower"]:
        number = int(re.match(r"image (\d+):", entry["name"]).group(1))  # type: ignore[union-attr]
        towers[number].append({name: value for name, value in entry.items() if name != "name"})
    assert all(len(tower) == len(towers[0]) > 1 for tower in towers)
    seen = zip(stages["grid"], stages["pixel_values"], towers, strict=True)
    return [json.dumps(one, sort_keys=True) for one in seen], answer


def conformance(served: Served) -> dict[str, Any]:
    """Pictures together give what each gives alone: three of 1280x720, mixed sizes, permuted, repeated."""
    pictures = [picture(10 + i, *LARGE) for i in range(3)] + [picture(20, 332, 48), picture(21, 160, 160)]
    served.capture("ascend_vl_capture_start")
    try:
        alone = [encoded(served, [one])[0][0] for one in pictures]
        assert len(set(alone)) == len(pictures)
        assert [json.loads(one)[0] for one in alone[:3]] == [[1, 44, 80]] * 3
        orders = ((0, 1, 2), (2, 0, 1), (0, 1, 2), (0, 3, 1, 4), (4, 1, 3, 0))
        given = [encoded(served, [pictures[i] for i in order]) for order in orders]
        for order, (seen, _) in zip(orders, given, strict=True):
            assert seen == [alone[i] for i in order], order
        assert given[0][1]["ids"] == given[2][1]["ids"], "the same request twice"
        assert given[0][1]["logprobs"] != given[1][1]["logprobs"], "the order of the pictures is not seen"
        direct = served.capture("ascend_vl_capture_together", "5")
    finally:
        served.capture("ascend_vl_capture_stop")
    assert direct["pictures"] == 5
    assert direct["self_agreement"]["equal"] and direct["together"]["equal"] and direct["reversed"]["equal"], direct
    assert direct["nearest"] == list(range(5)), direct
    return {"pictures": len(pictures), "patches": 3520, "orders": len(orders), "equal": "bit for bit"}


def concurrent(served: Served, clients: int = 8) -> dict[str, Any]:
    """Clients at once, with one to four pictures each, answer as each does alone."""
    requests = [
        (f"client {n}", [picture(100 + 4 * n + i, 64 + 32 * (i + n % 3), 96) for i in range(1 + n % 4)])
        for n in range(clients)
    ]
    alone = [answer_of(served.ask(*request)) for request in requests]
    with ThreadPoolExecutor(clients) as pool:
        together = [answer_of(response) for response in pool.map(lambda r: served.ask(*r), requests)]
    different = [n for n in range(clients) if not same_until_a_tie(alone[n], together[n])]
    assert not different, different
    assert all(a["prompt_ids"] == b["prompt_ids"] for a, b in zip(alone, together, strict=True))
    first = max(
        abs(step[k] - other[k])
        for a, b in zip(alone, together, strict=True)
        for step, other in [(a["logprobs"][0], b["logprobs"][0])]
        for k in step.keys() & other.keys()
    )
    assert first < LOGPROB, first
    return {"clients": clients, "pictures": sum(len(r[1]) for r in requests), "first_logprob_off": round(first, 4)}


def ramp(served: Served) -> dict[str, Any]:
    """More and more clients until requests wait: each is answered, or refused with 429 or 503; none is lost."""
    waited, done = 0, threading.Event()

    def watch() -> None:
        nonlocal waited
        while not done.wait(0.1):
            found = re.search(r"^vllm:num_requests_waiting\{[^}]*\} (\S+)", served.get("/metrics").text, re.MULTILINE)
            waited = max(waited, int(float(found.group(1))) if found else 0)

    watcher = threading.Thread(target=watch)
    watcher.start()
    outcomes: list[httpx.Response] = []
    try:
        for clients in RAMP:
            with ThreadPoolExecutor(clients) as pool:
                outcomes += pool.map(lambda n: served.ask(f"ramp {n}", [picture(1000 + n, 64, 64)], 4), range(clients))
    finally:
        done.set()
        watcher.join()
    codes = [response.status_code for response in outcomes]
    assert len(codes) == sum(RAMP) and set(codes) <= {200, 429, 503}, codes
    for response in outcomes:
        if response.status_code == 200:
            assert response.json()["usage"]["completion_tokens"] == 4
        else:
            assert response.json()["error"]["message"]
    assert waited > 0, "the queue never filled"
    return {
        "requests": len(codes),
        "answered": codes.count(200),
        "refused": len(codes) - codes.count(200),
        "most_waiting": waited,
    }


def tool_call(served: Served) -> dict[str, Any]:
    """A tool call through the hermes parser: the model is held to spell one, the server has to read it."""
    body = {
        "messages": [{"role": "user", "content": "look at seven"}],
        "tools": [TOOL],
        "tool_choice": "auto",
        "max_tokens": 100,
        "temperature": 0,
        "structured_outputs": {"choice": [CALL]},
    }
    answer = served.post("/v1/chat/completions", body)
    assert answer.status_code == 200, answer.text
    (choice,) = answer.json()["choices"]
    assert choice["finish_reason"] == "tool_calls", choice
    (call,) = choice["message"]["tool_calls"]
    assert call["function"]["name"] == "look" and json.loads(call["function"]["arguments"]) == {"at": 7}, call
    return {"call": call["function"]}


def long_prompt(served: Served, reference: Reference, tokens: int = 16384) -> dict[str, Any]:
    """A prompt with three large pictures that fills the context, against Transformers."""
    pictures = [picture(10 + i, *LARGE) for i in range(3)]
    answered = 12
    begin = time.monotonic()
    room = tokens - answered - answer_of(served.ask("", pictures, 1))["prompt_ids"].__len__()
    question = "".join(chr(97 + (7 * i + i // 13) % 26) for i in range(room))
    answer = answer_of(served.ask(question, pictures, answered))
    took = time.monotonic() - begin
    assert len(answer["prompt_ids"]) == tokens - answered
    verdict = reference.judge(question, pictures, answer)
    assert verdict["wrong"] == 0 and verdict["largest"] < 0.5, verdict
    over = served.ask(question + "x" * (answered + 1), pictures, answered)
    assert over.status_code == 400 and "maximum context length" in over.text, over.text
    return {"prompt_tokens": len(answer["prompt_ids"]), "seconds": round(took, 1)} | verdict


def clip(frames: int = 4) -> dict[str, Any]:
    """A content part with a short MP4 file."""
    import cv2

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "clip.mp4"
        writer = cv2.VideoWriter(str(file), cv2.VideoWriter_fourcc(*"mp4v"), 2.0, (64, 64))
        for n in range(frames):
            writer.write(np.asarray(picture(500 + n, 64, 64)))
        writer.release()
        encoded = base64.b64encode(file.read_bytes()).decode()
    return {"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{encoded}"}}


def video_refused(served: Served) -> dict[str, Any]:
    """A clip is refused by name, and the status says so; the server goes on."""
    content = [clip(), {"type": "text", "text": "what happens"}]
    answer = served.ask("", messages=[{"role": "user", "content": content}])
    assert answer.status_code == 400 and "video" in answer.json()["error"]["message"], answer.text
    assert served.get("/v1/ascend_vl/status").json()["video"] == "refused"
    assert served.ask("say hello", tokens=1).status_code == 200
    return {"refused": answer.json()["error"]["message"]}


def video_answered(served: Served) -> dict[str, Any]:
    """A clip is answered where it was allowed, differently from another clip, and the status says unverified."""
    texts = []
    for frames in (4, 6):
        content = [clip(frames), {"type": "text", "text": "what happens"}]
        answer = served.ask("", messages=[{"role": "user", "content": content}])
        assert answer.status_code == 200, answer.text
        texts.append(answer_of(answer)["logprobs"][0])
    assert texts[0] != texts[1]
    assert served.get("/v1/ascend_vl/status").json()["video"] == "unverified"
    return {"answered": True}


def again(error: Exception) -> None:
    """Raise it."""
    raise error
