"""Answers from an OpenAI-compatible server, with everything that its API gives on the way."""

import base64
import json
import math
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from ascend_vl import strict_json
from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text
from ascend_vl.verify.cases import Case
from ascend_vl.verify.runs import Answer

# Every field that changes what is sampled is sent, so that no default of the server or the checkpoint takes part.
SAMPLING: dict[str, Any] = {
    "temperature": 0,
    "top_p": 1,
    "n": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "seed": 0,
    "stop": [],
}
# Understood by vLLM; other servers may refuse them.
VLLM_SAMPLING: dict[str, Any] = {
    "top_k": -1,
    "min_p": 0,
    "repetition_penalty": 1,
    "length_penalty": 1,
    "min_tokens": 0,
    "ignore_eos": False,
    "skip_special_tokens": True,
}
TOP_LOGPROBS = 20
VLLM_REPORTING: dict[str, Any] = {"return_token_ids": True, "return_tokens_as_token_ids": True}
TIMEOUT = httpx.Timeout(600, connect=10)
# One prefill of a prompt and its answer.
FORCED = httpx.Timeout(180, connect=10)
_MEDIA = {
    b"\x89PNG": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"BM": "image/bmp",
    b"II*\0": "image/tiff",
    b"MM\0*": "image/tiff",
}


class Server:
    """One server; `fields` tells which extra request fields it took (found at the first request)."""

    def __init__(self, url: str, api_key: str | None = None) -> None:
        self.url = checked(url).rstrip("/").removesuffix("/v1")
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        # A proxy of the environment must not stand between us and a server on this machine.
        local = httpx.URL(self.url).host in ("127.0.0.1", "localhost", "::1")
        self._client = httpx.Client(base_url=self.url, headers=headers, timeout=TIMEOUT, trust_env=not local)
        self._levels = [
            {**SAMPLING, **VLLM_SAMPLING, **VLLM_REPORTING, "logprobs": True, "top_logprobs": TOP_LOGPROBS},
            {**SAMPLING, **VLLM_SAMPLING, **VLLM_REPORTING, "logprobs": True, "top_logprobs": 5},
            {**SAMPLING, "logprobs": True, "top_logprobs": 5},
            {**SAMPLING},
        ]
        self.model = self._model()

    @property
    def sampling(self) -> dict[str, Any]:
        """The sampling fields that are sent."""
        known = SAMPLING.keys() | VLLM_SAMPLING.keys()
        return {name: value for name, value in self._levels[0].items() if name in known}

    def get(self, path: str) -> dict[str, Any] | None:
        """A JSON object from a GET, None when the server has no such route."""
        try:
            response = self._client.get(path)
            value = strict_json.loads(response.text) if response.status_code == 200 else None
        except httpx.TransportError as error:
            raise unreachable(self.url, error) from None
        except ValueError:
            return None
        return value if isinstance(value, dict) else None

    def healthy(self) -> bool:
        """Whether GET /health answers 200."""
        try:
            return self._client.get("/health").status_code == 200
        except httpx.TransportError:
            return False

    def ask(self, case: Case, fresh_images: bool = False, fresh_prompt: bool = False) -> tuple[Answer, dict[str, Any]]:
        """The answer to a case, and the raw response.

        `fresh_images` marks each picture as never seen, so that no cache of the server answers for the vision tower;
        `fresh_prompt` keeps the server's prefix cache from answering for the language model.
        Raises AscendVLError `server-unreachable` or `server-refused`.
        """
        message = {"role": "user", "content": content(case, fresh_images)}
        body: dict[str, Any] = {"model": self.model, "messages": [message]}
        if fresh_prompt:
            body["cache_salt"] = uuid.uuid4().hex
        started = time.monotonic()
        response = self._post({**body, "max_tokens": case.max_tokens})
        answer = self._read(case.id, response)
        answer.timings["seconds"] = round(time.monotonic() - started, 4)
        return answer, response

    def ask_all(self, cases: list[Case], workers: int) -> list[Answer]:
        """All cases, `workers` at a time, in the order given."""
        with ThreadPoolExecutor(workers) as pool:
            return [answer for answer, _ in pool.map(self.ask, cases)]

    def forced(self, case: Case, text: str, token_ids: list[int]) -> list[list[tuple[int, float]]] | str:
        """Log probabilities at every position of a given answer, (token id, nats) best first; or why there are none.

        The answer is sent as the beginning of the assistant's turn; only if the server tokenises it as it was do the
        positions mean the same.
        """
        body = {"max_tokens": 1, "prompt_logprobs": 5, **self._continued(case, text, fresh=False)}
        try:
            response = self._client.post("/v1/chat/completions", json={**self._levels[0], **body}, timeout=FORCED)
        except httpx.TransportError as error:
            # vLLM 0.11 takes such a request for one with pictures, and never runs it.
            return f"the server did not answer a request for prompt_logprobs ({type(error).__name__})"
        if response.status_code != 200:
            return f"the server refused prompt_logprobs ({response.status_code})"
        value = self._object(response)
        prompt, listed = value.get("prompt_token_ids"), value.get("prompt_logprobs")
        said = token_ids[:-1] if prompt and prompt[-len(token_ids) :] != token_ids else token_ids
        if not prompt or not listed or not said or prompt[-len(said) :] != said:
            return "the server does not tokenise the text back to the same ids"
        return [_listed(position) for position in listed[-len(said) :]]

    def _continued(self, case: Case, text: str, fresh: bool) -> dict[str, Any]:
        """Fields of a request whose assistant's turn has begun with `text`; `fresh` as in `ask`."""
        messages = [{"role": "user", "content": content(case, fresh)}, {"role": "assistant", "content": text}]
        body: dict[str, Any] = {"model": self.model, "messages": messages}
        return {**body, "continue_final_message": True, "add_generation_prompt": False}

    def prefill(self, case: Case, text: str = "") -> None:
        """Run the case's prompt once, and `text` of its answer with it, with no cache able to answer for any part."""
        one = Case(case.id, case.prompt, case.images, 1)
        if not text:
            self.ask(one, fresh_images=True, fresh_prompt=True)
            return
        self._post({**self._continued(one, text, fresh=True), "max_tokens": 1, "cache_salt": uuid.uuid4().hex})

    def rpc(self, method: str, *arguments: object) -> Any:
        """The result of a capture method in the first worker, decoded. Raises AscendVLError `server-refused`."""
        return self.rpc_all(method, *arguments)[0]

    def rpc_all(self, method: str, *arguments: object) -> list[Any]:
        """The result of a capture method in every worker, decoded. Raises AscendVLError `server-refused`."""
        body = {"method": method, "args": [str(value) for value in arguments]}
        response = self._send("/v1/ascend_vl/capture", body)
        if response.status_code != 200:
            raise refused(self.url, response.status_code, response.text)
        results = self._object(response)["results"]
        return [json.loads(result) if isinstance(result, str) else result for result in results]

    def _model(self) -> str:
        try:
            response = self._client.get("/v1/models")
        except httpx.TransportError as error:
            raise unreachable(self.url, error) from None
        if response.status_code != 200:
            raise refused(self.url, response.status_code, response.text)
        try:
            return str(self._object(response)["data"][0]["id"])
        except (KeyError, IndexError, TypeError):
            raise unusable(self.url, "GET /v1/models names no model") from None

    def _object(self, response: httpx.Response) -> dict[str, Any]:
        """The JSON object in a response of 200. Raises AscendVLError `server-unusable`."""
        try:
            value = strict_json.loads(response.text)
        except ValueError as error:
            raise unusable(self.url, f"{error}: {response.text[:200]}") from None
        if not isinstance(value, dict):
            raise unusable(self.url, f"not a JSON object: {response.text[:200]}")
        return value

    def _read(self, identifier: str, response: dict[str, Any]) -> Answer:
        """`read_answer`. Raises AscendVLError `server-unusable` for a completion of another form."""
        try:
            return read_answer(identifier, response)
        except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
            why = f"not a chat completion ({type(error).__name__}: {error}): {json.dumps(response)[:200]}"
            raise unusable(self.url, why) from None

    def _post(self, body: dict[str, Any]) -> dict[str, Any]:
        while True:
            response = self._send("/v1/chat/completions", {**body, **self._levels[0]})
            if response.status_code == 200:
                return self._object(response)
            if response.status_code not in (400, 422) or len(self._levels) == 1:
                raise refused(self.url, response.status_code, response.text)
            self._levels.pop(0)

    def _send(self, path: str, body: dict[str, Any]) -> httpx.Response:
        try:
            return self._client.post(path, json=body)
        except httpx.TransportError as error:
            raise unreachable(self.url, error) from None


def content(case: Case, fresh_images: bool) -> list[dict[str, Any]]:
    """A case as the content of a user turn: the pictures' own bytes, then the prompt."""
    parts: list[dict[str, Any]] = []
    for path in case.images:
        part: dict[str, Any] = {"type": "image_url", "image_url": {"url": data_url(path.read_bytes())}}
        if fresh_images:
            part["uuid"] = uuid.uuid4().hex
        parts.append(part)
    return [*parts, {"type": "text", "text": case.prompt}]


def data_url(data: bytes) -> str:
    """`data:` URL of a picture's file."""
    media = next((name for magic, name in _MEDIA.items() if data.startswith(magic)), None)
    media = media or ("image/webp" if data[8:12] == b"WEBP" else "application/octet-stream")
    return f"data:{media};base64,{base64.b64encode(data).decode()}"


def read_answer(identifier: str, response: dict[str, Any]) -> Answer:
    """A chat completion as an Answer; what the server does not say is named in `missing`."""
    choice = response["choices"][0]
    text = choice["message"].get("content") or ""
    if not isinstance(text, str):
        raise TypeError("the content is not a text")
    answer = Answer(identifier, text, finish_reason=choice.get("finish_reason"))
    answer.token_ids = choice.get("token_ids")
    if answer.token_ids is None:
        answer.missing["token_ids"] = "the server does not return token ids"
    prompt_ids = response.get("prompt_token_ids")
    if prompt_ids is None:
        answer.missing["prompt_ids"] = "the server does not return prompt ids"
    else:
        answer.stages["prompt_ids"] = prompt_ids
    answer.logprobs = _logprobs(choice)
    if answer.logprobs is None:
        answer.missing["logprobs"] = "the server does not return log probabilities by token id"
    return answer


def _logprobs(choice: dict[str, Any]) -> list[list[tuple[int, float]]] | None:
    positions = (choice.get("logprobs") or {}).get("content")
    if not positions:
        return None
    prefix = "token_id:"
    tops = [top for position in positions for top in position["top_logprobs"]]
    if not all(top["token"].startswith(prefix) and math.isfinite(top["logprob"]) for top in tops):
        return None
    return [
        [(int(top["token"].removeprefix(prefix)), float(top["logprob"])) for top in position["top_logprobs"]]
        for position in positions
    ]


def _listed(position: dict[str, Any]) -> list[tuple[int, float]]:
    """One position of vLLM's prompt_logprobs, {token id: {"logprob": ...}}, best first."""
    pairs = [(int(token), float(value["logprob"])) for token, value in position.items()]
    return sorted(pairs, key=lambda pair: -pair[1])


def checked(url: str) -> str:
    """`url` if it can be an address. Raises AscendVLError `target-unknown`."""
    try:
        if httpx.URL(url).host:
            return url
        why = "it names no host"
    except httpx.InvalidURL as error:
        why = str(error)
    raise AscendVLError(
        "target-unknown",
        Text(f"There is nothing to ask at {url!r}.", f"{url!r} 处没有可提问的对象。"),
        Text(f"It is no address: {why}.", f"地址无效：{why}。"),
        Text("Give http://HOST:PORT.", "请给出 http://主机:端口。"),
    )


def unreachable(url: str, error: Exception) -> AscendVLError:
    """The error for a server that does not answer."""
    return AscendVLError(
        "server-unreachable",
        Text(f"{url} does not answer.", f"{url} 无响应。"),
        Text(f"{type(error).__name__}: {error}", f"{type(error).__name__}: {error}"),
        Text("Check that the server runs and that the address is right.", "请检查服务是否运行、地址是否正确。"),
    )


def refused(url: str, status: int, body: str) -> AscendVLError:
    """The error for a server that answers, but not with what was asked."""
    return AscendVLError(
        "server-refused",
        Text(f"{url} refused the request (HTTP {status}).", f"{url} 拒绝了请求（HTTP {status}）。"),
        Text(body.strip()[:400] or "It gave no reason.", body.strip()[:400] or "未给出原因。"),
        Text("Check the model, the API key and the server's log.", "请检查模型、API key 与服务日志。"),
    )


def unusable(url: str, why: str) -> AscendVLError:
    """The error for a server that says 200 and something else than an OpenAI-compatible server would."""
    return AscendVLError(
        "server-unusable",
        Text(f"{url} does not answer like an OpenAI-compatible server.", f"{url} 的回答不符合 OpenAI 兼容格式。"),
        Text(f"{why[:400]}.", f"{why[:400]}。"),
        Text("Check the address: a proxy may answer there.", "请检查地址：应答者可能是代理。"),
    )
