"""The production alarm counts broken answers and never touches a response."""

import json
import time

import anyio
import pytest
from prometheus_client import CollectorRegistry

from ascend_vl.verify import alarm_route
from ascend_vl.verify.alarm_route import AlarmMiddleware, Counters, answers


def chat(text):
    return json.dumps({"choices": [{"index": 0, "message": {"content": text}}]}).encode()


def stream(*pieces):
    events = [json.dumps({"choices": [{"index": 0, "delta": {"content": piece}}]}) for piece in pieces]
    return [f"data: {event}\n\n".encode() for event in [*events, "[DONE]"]]


def passed_through(bodies, path="/v1/chat/completions", status=200):
    """(bodies a client sees, counters) for an application that answers with these chunks."""
    registry = CollectorRegistry()

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": status, "headers": []})
        for index, body in enumerate(bodies):
            await send({"type": "http.response.body", "body": body, "more_body": index < len(bodies) - 1})

    seen = []

    async def send(message):
        if message["type"] == "http.response.body":
            seen.append(message["body"])

    async def receive():
        return {"type": "http.request"}

    middleware = AlarmMiddleware(app, Counters(registry))
    anyio.run(middleware, {"type": "http", "path": path}, receive, send)
    middleware.waiting.join()

    def value(name, **labels):
        return registry.get_sample_value(name, labels)

    return seen, value


@pytest.mark.parametrize(
    ("text", "kind"), [("", "empty"), ("!" * 20, "zero_run"), ("see a cat. " * 9, "repetition"), ("a\x00b", "garble")]
)
def test_a_broken_answer_is_counted_by_kind(text, kind):
    seen, value = passed_through([chat(text)])
    assert seen == [chat(text)]
    assert value("ascend_vl_degenerate_answers_total", kind=kind) == 1
    assert value("ascend_vl_answers_checked_total") == 1


def test_a_stream_is_judged_whole():
    pieces = stream(*["!"] * 12)
    seen, value = passed_through(pieces)
    assert seen == pieces
    assert value("ascend_vl_degenerate_answers_total", kind="zero_run") == 1


def test_a_sound_answer_is_only_looked_at():
    _, value = passed_through([chat("A red circle on a white background.")])
    assert value("ascend_vl_answers_checked_total") == 1
    assert sum(value("ascend_vl_degenerate_answers_total", kind=k) for k in ("empty", "zero_run", "repetition")) == 0


@pytest.mark.parametrize(("path", "status"), [("/v1/models", 200), ("/v1/chat/completions", 400)])
def test_other_requests_and_refusals_are_not_answers(path, status):
    _, value = passed_through([chat("")], path, status)
    assert value("ascend_vl_answers_checked_total") == 0


def test_a_tool_call_is_not_an_empty_answer():
    body = {"choices": [{"index": 0, "message": {"content": None, "tool_calls": [{"id": "1"}]}}]}
    assert answers(json.dumps(body).encode()) == []


@pytest.mark.parametrize("built", [False, True])
def test_it_joins_an_application_whether_or_not_its_stack_is_built(built, monkeypatch):
    from fastapi import FastAPI
    from fastapi.testclient import TestClient

    registry = CollectorRegistry()
    monkeypatch.setattr(alarm_route, "Counters", lambda: Counters(registry))
    app = FastAPI()
    app.add_api_route("/v1/chat/completions", lambda: {"choices": [{"message": {"content": ""}}]}, methods=["POST"])
    if built:
        # As vLLM 0.32 hands it over.
        app.middleware_stack = app.build_middleware_stack()
    alarm_route.attach(app, None)
    assert TestClient(app).post("/v1/chat/completions").status_code == 200
    deadline = time.monotonic() + 30
    while registry.get_sample_value("ascend_vl_answers_checked_total") == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert registry.get_sample_value("ascend_vl_degenerate_answers_total", {"kind": "empty"}) == 1
