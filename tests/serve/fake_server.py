"""Stands in for vLLM in tests of the process: logs a start-up, answers a few routes, keeps a child process.

usage: fake_server.py PORT [--die | --silent-plugin | --no-token | --stubborn |
    --unprobed-worker | --failed-adaptation]
"""

import json
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

START_UP = """(Worker pid=1) INFO 11-30 17:51:28 [cpu_model_runner.py:68] Starting to load model tiny...
Loading safetensors checkpoint shards:   0% Completed | 0/2 [00:00<?, ?it/s]
Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:00<00:00,  5.00it/s]
Loading safetensors checkpoint shards: 100% Completed | 2/2 [00:00<00:00,  5.00it/s]
(Worker pid=1) INFO 11-30 17:51:30 [default_loader.py:501] Loading weights took 0.43 seconds
(EngineCore pid=2) INFO 11-30 17:51:31 [kv_cache_utils.py:2327] CPU KV cache size: 524,288 tokens, Maximum
(EngineCore pid=2) INFO 11-30 17:51:35 [core.py:402] init engine (profile, create kv cache, warmup model) took 3.30 s
"""
DEATH = """(Worker pid=1) ERROR 11-30 17:51:30 [x.py:1] Traceback (most recent call last):
(Worker pid=1) ERROR 11-30 17:51:30 [x.py:1] ValueError: There is no module or parameter named 'model'
(EngineCore pid=2) ERROR RuntimeError: Engine core initialization failed. See root cause above.
"""


class Routes(BaseHTTPRequestHandler):
    def answer(self, value: object, status: int = 200) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        if self.path == "/health":
            self.answer({})
        elif self.path == "/v1/models":
            self.answer({"data": [{"id": "tiny"}]})
        else:
            active = "--silent-plugin" not in sys.argv
            replaced = [{"name": "vllm.x.build_app", "original": "/vllm/x.py:1", "ours": "/ascend_vl/y.py:2"}]
            state = "not-applicable" if "--unprobed-worker" in sys.argv else "active"
            state = "failed" if "--failed-adaptation" in sys.argv else state
            workers = [
                {"rank": rank, "plugin": plugin, "replaced": [], "adaptations": [{"id": "float16", "state": stands}]}
                for rank, (plugin, stands) in enumerate(((True, "active"), (active, state)))
            ]
            self.answer({"schema": 1, "api_server": {"replaced": replaced}, "workers": workers})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/v1/chat/completions":
            # What the server was shown, as its answer.
            shown = [part["type"] for part in body["messages"][0]["content"]]
            said = {"message": {"content": " ".join([*shown, str(body["temperature"])])}, "finish_reason": "stop"}
            self.answer({"choices": [said], "usage": {"completion_tokens": 1}})
            return
        self.answer({"usage": {"completion_tokens": 0 if "--no-token" in sys.argv else 1}})

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    if "--stubborn" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # A worker that does not react to the end of its parent.
    subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"])
    print(START_UP, flush=True)
    if "--die" in sys.argv:
        print(DEATH, flush=True)
        sys.exit(1)
    time.sleep(0.1)
    HTTPServer(("127.0.0.1", int(sys.argv[1])), Routes).serve_forever()


if __name__ == "__main__":
    main()
