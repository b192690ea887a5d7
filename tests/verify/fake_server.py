"""An OpenAI-compatible server with known behaviour: `python fake_server.py MODE`; prints its port.

Modes: vllm (token ids, log probabilities), plain (refuses every field that OpenAI's API does not have), late (answers
each request with the answer to the one before), jitter (no two answers alike), crash (500), key (wants a key), mute (as
vllm, but never answers a request for prompt_logprobs).
"""

import hashlib
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

FIELDS = """model messages max_tokens temperature top_p n presence_penalty frequency_penalty seed stop logprobs
    top_logprobs"""
PLAIN = set(FIELDS.split())


def answer(messages):
    """A text that depends on the whole question, pictures included, with a number in it."""
    digest = hashlib.sha256(json.dumps(messages, sort_keys=True).encode()).hexdigest()
    return f"I count {int(digest[:4], 16)} things of kind {digest[4:10]}."


class Handler(BaseHTTPRequestHandler):
    mode = "vllm"
    before = "I count 0 things."
    seen: ClassVar[list] = []

    def log_message(self, *given):
        pass

    def reply(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.mode == "key" and self.headers.get("Authorization") != "Bearer secret":
            return self.reply(401, {"error": {"message": "Unauthorized"}})
        known = {
            "/v1/models": {"data": [{"id": "fake"}]},
            "/version": {"version": "9.9"},
            "/seen": {"requests": self.seen},
        }
        return self.reply(200, known[self.path]) if self.path in known else self.reply(404, {})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.mode == "crash":
            return self.reply(500, {"error": {"message": "Internal Server Error"}})
        unknown = body.keys() - PLAIN
        if self.mode == "plain" and unknown:
            return self.reply(400, {"error": {"message": f"Unrecognized request argument: {sorted(unknown)[0]}"}})
        if self.mode == "mute" and body.get("prompt_logprobs"):
            threading.Event().wait()
        self.seen.append(body)
        text = answer(body["messages"])
        if self.mode == "late":
            text, Handler.before = Handler.before, text
        if self.mode == "jitter":
            text = f"{text} {len(self.seen)}"
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        value = {"choices": [choice]}
        if body.get("return_token_ids"):
            ids = list(text.encode())
            value["prompt_token_ids"] = list(json.dumps(body["messages"]).encode())[:8]
            choice["token_ids"] = ids
            tops = [
                [{"token": f"token_id:{i}", "logprob": -0.1}, {"token": "token_id:1", "logprob": -3.0}] for i in ids
            ]
            choice["logprobs"] = {"content": [{"token": t[0]["token"], "top_logprobs": t} for t in tops]}
        return self.reply(200, value)


if __name__ == "__main__":
    Handler.mode = sys.argv[1]
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    print(server.server_port, flush=True)
    server.serve_forever()
