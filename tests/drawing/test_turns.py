"""Chat's turns among drawings, counted in messages at the engine's door, so that no clock decides.

The engine core answers in the order in which it works: a slice's answer that arrives before a token was a slice that
the token waited for.
"""

import asyncio
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_worker import wider

from ascend_vl.drawing import budget
from ascend_vl.drawing.lane import Lane, LaneSettings
from ascend_vl.models import names

pytestmark = pytest.mark.engine

CHATS, TOKENS = 12, 8


def listen(engine: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What goes to the engine core and what comes back, in order: ("add" | "token", request) and ("slice", "")."""
    from vllm.v1.engine import core_client

    heard: list[tuple[str, str]] = []
    core, answered = engine.engine_core, core_client._process_utility_output
    add, put = core.add_request_async, core.outputs_queue.put_nowait

    def answer(output: Any, waiting: Any) -> None:
        value = getattr(output.result, "result", None)
        # A slice that gave way to a step of chat did nothing.
        if "'gave_way': True" not in repr(value):
            heard.append(("slice", ""))
        answered(output, waiting)

    async def adding(request: Any) -> None:
        heard.append(("add", request.request_id))
        await add(request)

    def putting(item: Any) -> None:
        heard.extend(("token", o.request_id) for o in getattr(item, "outputs", ()) for _ in o.new_token_ids)
        put(item)

    monkeypatch.setattr(core_client, "_process_utility_output", answer)
    monkeypatch.setattr(core, "add_request_async", adding)
    monkeypatch.setattr(core.outputs_queue, "put_nowait", putting)
    return heard


def waited(heard: list[tuple[str, str]]) -> tuple[list[int], list[int]]:
    """Slices that each chat's first token waited for, and each later token."""
    first, later, since = [], [], {}
    for what, request in heard:
        if what == "slice":
            since = {name: (count + 1, began) for name, (count, began) in since.items()}
        elif what == "add":
            since[request] = (0, False)
        else:
            count, began = since[request]
            (later if began else first).append(count)
            since[request] = (0, True)
    return first, later


def test_counting_sees_a_second_slice() -> None:
    heard = [("add", "a"), ("slice", ""), ("token", "a"), ("slice", ""), ("slice", ""), ("token", "a")]
    assert waited(heard) == ([1], [2])


def test_every_token_waits_for_at_most_one_slice(
    tiny: Path, tokenizer: Any, image_processor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two drawings under way all the time, chats beginning at any moment; scheduling as the plan sets it."""
    monkeypatch.setenv("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    from vllm import SamplingParams
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    job = replace(wider("beyond one pass", tokenizer, image_processor, steps=200), trace_steps=None)

    async def chat(engine: Any, number: int) -> None:
        sampling = SamplingParams(temperature=0.0, max_tokens=TOKENS, ignore_eos=True)
        async for _ in engine.generate("once upon a time", sampling, f"chat-{number}"):
            pass

    async def body() -> tuple[list[int], list[int]]:
        arguments = AsyncEngineArgs(**settings(tiny))
        engine = AsyncLLM.from_engine_args(arguments)
        try:
            heard = listen(engine, monkeypatch)
            await engine.collective_rpc("drawing_open")

            def rpc(method: str, args: tuple[Any, ...]) -> Any:
                return engine.collective_rpc(method, args=args)

            def chatting() -> bool:
                return engine.output_processor.has_unfinished_requests()

            lane = Lane(rpc, LaneSettings(slice_seconds=0.03), 2 * budget.FLOOR, lambda job: 1, lambda: None, chatting)
            drawings = [asyncio.ensure_future(lane.draw(job)) for _ in range(2)]
            rng = random.Random(3)
            for number in range(CHATS):
                await asyncio.sleep(rng.uniform(0.02, 0.15))
                await chat(engine, number)
            assert not any(drawing.done() for drawing in drawings)
            for drawing in drawings:
                drawing.cancel()
            await asyncio.gather(*drawings, return_exceptions=True)
            return waited(heard)
        finally:
            engine.shutdown()

    first, later = asyncio.run(body())
    assert len(first) == CHATS and len(later) == CHATS * (TOKENS - 1)
    assert max(first) == 1 and max(later) == 1 and sum(later) > len(later) / 2


def settings(directory: Path) -> dict[str, Any]:
    """Of the engine; what concerns turns comes from the plan."""
    from ascend_vl.checkpoint import inspect_checkpoint
    from ascend_vl.machine import describe
    from ascend_vl.plan import Wishes, resolve

    plan = resolve(inspect_checkpoint(directory), Wishes(), describe(chip="cpu", memory=64))
    return {
        "model": str(directory),
        "dtype": "float32",
        "enforce_eager": True,
        "max_model_len": 1024,
        "max_num_seqs": 8,
        "kv_cache_memory_bytes": 2**26,
        "distributed_executor_backend": "uni",
        "async_scheduling": "--no-async-scheduling" not in plan.command,
        "limit_mm_per_prompt": {"video": 0, "image": {"count": 1, "width": 256, "height": 256}},
        "worker_extension_cls": names.WORKER_EXTENSION,
        "hf_overrides": {"architectures": [names.HIDREAM_O1], names.DRAWING_KEY: True},
    }
