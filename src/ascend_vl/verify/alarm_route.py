"""The production alarm: answers that look broken, counted for Prometheus, without a baseline and off the hot path.

A request only leaves references to its response's chunks; one thread reads them. When it falls behind, answers are
dropped and counted as such. The counters stand in vLLM's own GET /metrics.
"""

import json
import queue
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from ascend_vl.verify.alarms import KINDS, degenerate

PATHS = ("/v1/chat/completions", "/v1/completions")
WAITING = 256
LARGEST_BODY = 4 << 20

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Counters:
    """The Prometheus counters, in the default registry that vLLM's /metrics shows."""

    def __init__(self, registry: Any = None) -> None:
        from prometheus_client import REGISTRY, Counter

        place = registry or REGISTRY
        self.checked = Counter("ascend_vl_answers_checked", "Answers looked at by the alarm", registry=place)
        self.dropped = Counter("ascend_vl_answers_dropped", "Answers the alarm had no time for", registry=place)
        self.degenerate = Counter("ascend_vl_degenerate_answers", "Answers that look broken", ["kind"], registry=place)
        for kind in KINDS:
            self.degenerate.labels(kind)

    def count(self, text: str) -> None:
        """Look at one finished answer."""
        self.checked.inc()
        for kind in degenerate(text):
            self.degenerate.labels(kind).inc()


class AlarmMiddleware:
    """ASGI middleware; passes every message on unchanged and at once."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]], counters: Counters) -> None:
        self.app = app
        self.counters = counters
        self.waiting: queue.Queue[list[bytes]] = queue.Queue(WAITING)
        threading.Thread(target=self._read, name="ascend-vl-alarm", daemon=True).start()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http" or scope["path"] not in PATHS:
            await self.app(scope, receive, send)
            return
        chunks: list[bytes] = []
        status = 0

        async def keep(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "http.response.body":
                chunks.append(message.get("body", b""))
                if status == 200 and not message.get("more_body"):
                    self._hand_over(chunks)
            await send(message)

        await self.app(scope, receive, keep)

    def _hand_over(self, chunks: list[bytes]) -> None:
        try:
            self.waiting.put_nowait(chunks)
        except queue.Full:
            self.counters.dropped.inc()

    def _read(self) -> None:
        while True:
            chunks = self.waiting.get()
            if sum(map(len, chunks)) > LARGEST_BODY:
                self.counters.dropped.inc()
            else:
                for text in answers(b"".join(chunks)):
                    self.counters.count(text)
            self.waiting.task_done()


def answers(body: bytes) -> list[str]:
    """The finished answers in a response: a JSON document, or server-sent events put together by choice."""
    text = body.decode("utf-8", "replace")
    documents = []
    events = [line[5:].strip() for line in text.splitlines() if line.startswith("data:")]
    for document in events or [text]:
        try:
            documents.append(json.loads(document))
        except ValueError:
            continue
    said: dict[int, str] = {}
    for document in documents:
        for choice in document.get("choices", []) if isinstance(document, dict) else []:
            part = choice.get("delta") or choice.get("message") or {}
            # A call of a tool has no text, and is no empty answer.
            if part.get("tool_calls"):
                continue
            piece = part.get("content") or choice.get("text") or ""
            said[choice.get("index", 0)] = said.get(choice.get("index", 0), "") + piece
    return list(said.values())


def attach(app: Any, args: Any) -> None:
    """Add the middleware to vLLM's application, whose stack newer versions have already built by now."""
    if getattr(app, "middleware_stack", None) is None:
        app.add_middleware(AlarmMiddleware, counters=Counters())
    else:
        app.middleware_stack = AlarmMiddleware(app.middleware_stack, Counters())
