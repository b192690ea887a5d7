"""Drawing through a real server: HTTP, vLLM's engine, its worker."""

import asyncio
import io
import json
import random
import re
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import oracle
import pytest

from ascend_vl.drawing import client as drawing

pytestmark = pytest.mark.engine

PROMPT = "once upon a time there was"


@pytest.mark.parametrize("case", oracle.CASES)
def test_the_server_draws_what_the_reference_drew(tiny_server: Any, case: str) -> None:
    asked = oracle.meta(case)
    pictures = [oracle.DATA / "ref0.png"] if case == "edit" else []
    with tiny_server.client() as client:
        answer = drawing.draw(
            *(client, asked["prompt"], pictures),
            size=f"{asked['width']}x{asked['height']}",
            seed=asked["seed"],
            steps=asked["steps"],
            recipe="dev" if case == "dev" else "full",
            trace=True,
        )
    with np.load(io.BytesIO(answer.trace or b"")) as arrays:
        oracle.check({name: arrays[name] for name in arrays.files}, case)


def test_the_key_guards_every_drawing_route(tiny_server: Any) -> None:
    with httpx.Client(base_url=tiny_server.url, trust_env=False) as stranger:
        for method, path in (("POST", "images/generations"), ("POST", "images/edits"), ("GET", "ascend_vl/drawing")):
            assert stranger.request(method, f"/v1/{path}", json={}).status_code == 401


def test_the_official_client_draws_and_lists(tiny_server: Any) -> None:
    import openai

    client = openai.OpenAI(api_key=tiny_server.api_key, base_url=f"{tiny_server.url}/v1")
    made = client.images.generate(model=tiny_server.model, prompt="a cube", size="64x64", extra_body={"steps": 2})
    assert made.data and made.data[0].b64_json
    edited = client.images.edit(
        model=tiny_server.model,
        image=(oracle.DATA / "ref0.png").open("rb"),
        prompt="blue",
        size="64x64",
        extra_body={"steps": 2},
    )
    assert edited.data and edited.data[0].b64_json
    stream = client.images.generate(
        model=tiny_server.model, prompt="x", size="64x64", stream=True, partial_images=1, extra_body={"steps": 4}
    )
    assert [event.type for event in stream] == ["image_generation.partial_image", "image_generation.completed"]


async def chat(client: httpx.AsyncClient, model: str, tokens: int) -> list[Any]:
    """Token by token, greedily."""
    out = []
    body = {
        "model": model,
        "prompt": PROMPT,
        "max_tokens": tokens,
        "temperature": 0,
        "stream": True,
        "ignore_eos": True,
    }
    async with client.stream("POST", "/v1/completions", json={**body, "logprobs": 1}) as response:
        async for line in response.aiter_lines():
            if line.startswith("data:") and "[DONE]" not in line:
                for choice in json.loads(line[5:])["choices"]:
                    out += choice["logprobs"]["tokens"]
    return out


async def draw(client: httpx.AsyncClient, **fields: Any) -> httpx.Response:
    body = {"prompt": "a cat", "size": "512x512", "recipe": "full", "steps": 50, "seed": 3, **fields}
    return await client.post("/v1/images/generations", json=body)


async def slices(client: httpx.AsyncClient) -> int:
    """Slices that were run so far."""
    shown = (await client.get("/metrics")).text
    return int(float(re.findall(r"^ascend_vl_drawing_slice_seconds_count (\S+)", shown, re.M)[0]))


def asynchronous(server: Any) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {server.api_key}"}
    return httpx.AsyncClient(base_url=server.url, headers=headers, timeout=600, trust_env=False)


def test_chat_beside_two_drawings_says_the_same_and_waits_for_one_slice_a_token(tiny_server: Any) -> None:
    async def body() -> None:
        async with asynchronous(tiny_server) as client:
            alone = await chat(client, tiny_server.model, 40)
            before = await slices(client)
            tasks = [asyncio.ensure_future(draw(client, seed=seed)) for seed in (1, 2)]
            while await slices(client) < before + 4:
                await asyncio.sleep(0.05)
            start = await slices(client)
            beside = await chat(client, tiny_server.model, 40)
            ran = await slices(client) - start
            assert not any(task.done() for task in tasks), "the drawings must outlast the chat to tell anything"
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert beside == alone and len(alone) == 40
            # One slice may run before each token; the request's way in and out and the metrics take a few more.
            assert 1 <= ran <= 40 + 15
            await left_nothing(client)

    asyncio.run(body())


async def left_nothing(client: httpx.AsyncClient) -> None:
    """Waits until the lane and the workers are empty; the test's own time limit is the bound."""
    while True:
        shown = (await client.get("/v1/ascend_vl/drawing")).json()
        if shown["active"] == shown["waiting"] == 0 and all(w["sessions"] == [] for w in shown["workers"]):
            return
        await asyncio.sleep(0.1)


def test_clients_killed_at_random_moments_leave_nothing_and_the_next_is_served(tiny_server: Any) -> None:
    async def killed(client: httpx.AsyncClient, after: float, stream: bool) -> None:
        try:
            await asyncio.wait_for(draw(client, stream=stream, size="256x256"), after)
        except asyncio.TimeoutError:
            return

    async def body() -> None:
        rng = random.Random(7)
        async with asynchronous(tiny_server) as client:
            moments = [(rng.uniform(0.02, 1.5), k % 2 == 0) for k in range(10)]
            await asyncio.gather(*(killed(client, *moment) for moment in moments))
            await asyncio.wait_for(left_nothing(client), 120)
            again = await draw(client, size="64x64", steps=2)
            assert again.status_code == 200

    asyncio.run(body())


def test_stage_d_of_verify_passes_on_it(
    tiny_server: Any, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ascend_vl.verify import stage_drawing
    from ascend_vl.verify.stages import Session

    monkeypatch.setattr(stage_drawing, "SIDE", 128)
    session = Session(model=tiny, cases=tmp_path / "none", out=tmp_path, requirements=[])
    session.use(tiny_server)
    stage_drawing.run(session)
    assert session.statuses == ["drew"] and [check.status for check in session.checks] == ["passed"] * 9
