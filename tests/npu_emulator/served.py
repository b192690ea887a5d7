"""`ascend-vl emulate ... -- ascend-vl serve MODEL` run as a user runs it, questions to it over HTTP, and what
Transformers says about the answers. Everything here is emulated.
"""

import base64
import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
from PIL import Image

from npu_emulator import stacks

ROOT = Path(__file__).parents[2]
SECONDS_TO_START = 900
# Leading log-probability by which a choice counts as decidable: more than two float16 computations differ by.
MARGIN = 0.15
VISION = "<|vision_start|><|image_pad|><|vision_end|>"


@dataclass
class Served:
    """A server that said it was ready: the object that `serve --json` printed, and where it is."""

    ready: dict[str, Any]

    @property
    def url(self) -> str:
        return str(self.ready["url"])

    @property
    def log(self) -> str:
        """All that vLLM printed so far."""
        return Path(self.ready["log"]).read_text(errors="replace")

    def post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        """A request with the model's name in it."""
        whole = {"model": self.ready["model"], **body}
        return httpx.post(f"{self.url}{path}", json=whole, timeout=600, trust_env=False)

    def get(self, path: str) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", timeout=60, trust_env=False)

    def ask(
        self, question: str, pictures: Sequence[Image.Image] = (), tokens: int = 8, **fields: Any
    ) -> httpx.Response:
        """One greedy answer of exactly `tokens` tokens, with its ids and log-probabilities."""
        parts = [{"type": "image_url", "image_url": {"url": data_url(picture)}} for picture in pictures]
        content = [*parts, {"type": "text", "text": question}]
        body: dict[str, Any] = {
            "messages": [{"role": "user", "content": content}],
            "max_tokens": tokens,
            "temperature": 0,
            "ignore_eos": True,
            "logprobs": True,
            "top_logprobs": 5,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
        }
        return self.post("/v1/chat/completions", body | fields)

    def capture(self, method: str, *arguments: str) -> Any:
        """Rank 0's result of a method of the capture route."""
        answer = self.post("/v1/ascend_vl/capture", {"method": method, "args": list(arguments)})
        assert answer.status_code == 200, answer.text
        first = answer.json()["results"][0]
        return json.loads(first) if first else None


@contextlib.contextmanager
def serving(
    version: str, chip: str, model: Path, *options: str, chips: int = 1, faults: str = "none", **variables: str
) -> Iterator[Served]:
    """A ready server of a stack on an emulated machine; RuntimeError with everything printed when it ends before.

    The files of the stack are as published afterwards.
    """
    emulate = ["emulate", "--chip", chip, "--chips", str(chips), "--stack", version, "--faults", faults, "--"]
    serve = ["ascend-vl", "serve", str(model), "--port", str(free_port()), "--json", *options]
    environment = (
        os.environ | {"OMP_NUM_THREADS": "1", "VLLM_NO_USAGE_STATS": "1", "ASCEND_VL_CAPTURE": "1"} | variables
    )
    with tempfile.TemporaryFile("w+") as said:
        command = [sys.executable, "-m", "ascend_vl", *emulate, *serve]
        child = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=said, text=True, start_new_session=True
        )
        # A start that never ends must not hang the tests: ending it closes the pipe that is read.
        watch = threading.Timer(SECONDS_TO_START, os.killpg, (child.pid, signal.SIGTERM))
        watch.start()
        try:
            document = first_document(child)
            watch.cancel()
            if "url" not in document:
                child.wait(60)
                said.seek(0)
                raise NotReady(document.get("error"), said.read())
            yield Served(document)
        finally:
            watch.cancel()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGINT)
            child.wait(60)
    assert stacks.check(version, ROOT) == []


class NotReady(RuntimeError):
    """The server ended before it was ready; `error` is the object that `serve --json` printed, None without one."""

    def __init__(self, error: dict[str, Any] | None, said: str) -> None:
        super().__init__(f"{json.dumps(error, ensure_ascii=False)}\n{said[-4000:]}")
        self.error = error or {}


def first_document(child: "subprocess.Popen[str]") -> dict[str, Any]:
    """The first JSON object on its standard output; {} when it closed before one."""
    assert child.stdout is not None
    text = ""
    for line in child.stdout:
        text += line
        if line.rstrip() == "}":
            found: dict[str, Any] = json.loads(text)
            return found
    return {}


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def data_url(picture: Image.Image) -> str:
    """As a PNG in a data: URL."""
    out = io.BytesIO()
    picture.save(out, "PNG", compress_level=1)
    return f"data:image/png;base64,{base64.b64encode(out.getvalue()).decode()}"


def picture(seed: int, width: int, height: int) -> Image.Image:
    """Coarse noise: every seed gives a different one."""
    noise = np.random.default_rng(seed).integers(0, 256, (-(-height // 8), -(-width // 8), 3), dtype=np.uint8)
    return Image.fromarray(noise).resize((width, height), Image.Resampling.NEAREST)


def answer_of(response: httpx.Response) -> dict[str, Any]:
    """{"prompt_ids", "ids", "logprobs", "text"} of an answered request."""
    assert response.status_code == 200, response.text
    body = response.json()
    (choice,) = body["choices"]
    steps = [
        {int(top["token"].removeprefix("token_id:")): float(top["logprob"]) for top in step["top_logprobs"]}
        for step in choice["logprobs"]["content"]
    ]
    return {
        "prompt_ids": body["prompt_token_ids"],
        "ids": choice["token_ids"],
        "logprobs": steps,
        "text": choice["message"]["content"],
    }


def same_until_a_tie(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two answers to one prompt are the same token by token, up to the first choice that was not decidable."""
    for first, second, step in zip(one["ids"], other["ids"], one["logprobs"], strict=True):
        ranked = sorted(step.values(), reverse=True)
        if ranked[0] - ranked[1] < MARGIN:
            return True
        if first != second:
            return False
    return True


class Reference:
    """Transformers on the same checkpoint, teacher-forced along a served answer."""

    def __init__(self, model: Path, dtype: torch.dtype = torch.float16, attention: str = "eager") -> None:
        from transformers import AutoModelForImageTextToText, AutoProcessor

        self.processor = AutoProcessor.from_pretrained(model)
        self.model = AutoModelForImageTextToText.from_pretrained(
            model, dtype=dtype, attn_implementation=attention
        ).eval()

    @torch.no_grad()
    def judge(
        self, question: str, pictures: Sequence[Image.Image], answer: dict[str, Any], margin: float = MARGIN
    ) -> dict[str, Any]:
        """{"decidable", "wrong", "largest"}: decidable positions, those of them with another token, and the largest
        difference of a log-probability.
        """
        content = [{"type": "image"} for _ in pictures] + [{"type": "text", "text": question}]
        messages = [{"role": "user", "content": content}]
        prompt = self.processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        inputs = dict(self.processor(text=[prompt], images=list(pictures) or None, return_tensors="pt"))
        assert inputs["input_ids"][0].tolist() == answer["prompt_ids"], "the two sides read different prompts"
        ids = torch.tensor([answer["prompt_ids"] + answer["ids"]])
        inputs |= {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if "mm_token_type_ids" in inputs:
            types = inputs["mm_token_type_ids"]
            inputs["mm_token_type_ids"] = torch.nn.functional.pad(types, (0, ids.shape[1] - types.shape[1]))
        logits = self.model(**inputs, logits_to_keep=len(answer["ids"]) + 1).logits[0, :-1].float()
        verdict: dict[str, Any] = {"decidable": 0, "wrong": 0, "largest": 0.0}
        for row, token, seen in zip(torch.log_softmax(logits, -1), answer["ids"], answer["logprobs"], strict=True):
            top = row.topk(2)
            if top.values[0] - top.values[1] > margin:
                verdict["decidable"] += 1
                verdict["wrong"] += int(token != int(top.indices[0]))
            verdict["largest"] = max([verdict["largest"], *(abs(float(row[k]) - value) for k, value in seen.items())])
        return verdict
