"""Chat beside two drawings, in one server, as ratios: `python benchmarks/drawing_chat.py MODEL [--size WxH]`.

Gap between chat tokens over (gap undisturbed + slice), and time to a new chat's first token over (time undisturbed +
slice): medians with the median slice, 95th percentiles with the 95th. Peak resident memory with chat and drawing over
(peak with chat alone + the workspace), and over chat alone.
"""

import argparse
import asyncio
import json
import re
import statistics
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx

PROMPT = "once upon a time there was"
NEW_CHATS = 20


async def chat(client: httpx.AsyncClient, model: str, tokens: int) -> tuple[list[str], float, list[float]]:
    """Tokens of a greedy answer, seconds to the first, and the gaps after it."""
    body = {"model": model, "prompt": PROMPT, "max_tokens": tokens, "temperature": 0, "stream": True}
    started, times, said = time.perf_counter(), [], []
    sent = {**body, "ignore_eos": True, "logprobs": 1}
    async with client.stream("POST", "/v1/completions", json=sent) as response:
        async for line in response.aiter_lines():
            if line.startswith("data:") and "[DONE]" not in line:
                for choice in json.loads(line[5:])["choices"]:
                    said += choice["logprobs"]["tokens"]
                    times.append(time.perf_counter())
    return said, times[0] - started, [b - a for a, b in pairwise(times)]


async def metric(client: httpx.AsyncClient, name: str) -> float:
    """A number of /metrics."""
    found = re.findall(rf"^{name} (\S+)", (await client.get("/metrics")).text, re.M)
    return float(found[0]) if found else 0.0


def peak(process: Any) -> int:
    """Peak resident bytes of the server's processes together."""
    import psutil

    total = 0
    for member in [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]:
        status = Path(f"/proc/{member.pid}/status").read_text()
        total += 1024 * int(re.findall(r"VmHWM:\s+(\d+)", status)[0])
    return total


def ninety_five(values: list[float]) -> float:
    """The 95th percentile."""
    return sorted(values)[min(len(values) - 1, int(0.95 * len(values)))]


async def chats(client: httpx.AsyncClient, model: str, tokens: int) -> tuple[list[str], list[float], list[float]]:
    """A long answer's tokens, its gaps, and the times to the first token of short ones that begin at odd moments."""
    said, _, gaps = await chat(client, model, tokens)
    firsts = []
    for k in range(NEW_CHATS):
        await asyncio.sleep(0.02 + 0.013 * (k % 7))
        firsts.append((await chat(client, model, 2))[1])
    return said, gaps, firsts


async def measure(server: Any, size: str, tokens: int) -> dict[str, Any]:
    """All ratios of one server."""
    headers = {"Authorization": f"Bearer {server.api_key}"} if server.api_key else {}
    async with httpx.AsyncClient(base_url=server.url, headers=headers, timeout=None, trust_env=False) as client:
        await chat(client, server.model, 8)
        alone, gaps, firsts = await chats(client, server.model, tokens)
        memory = peak(server.process)
        body = {"prompt": "a cat", "size": size, "recipe": "full", "steps": 200}
        drawings = [asyncio.ensure_future(client.post("/v1/images/generations", json=body)) for _ in range(2)]
        while await metric(client, "ascend_vl_drawing_slice_seconds_count") < 40:
            await asyncio.sleep(0.1)
        before = await metric(client, "ascend_vl_drawing_slice_seconds_count")
        beside, gaps_beside, firsts_beside = await chats(client, server.model, tokens)
        after = await metric(client, "ascend_vl_drawing_slice_seconds_count")
        slices = (await client.get("/v1/ascend_vl/drawing")).json()["slice_seconds"]
        outlasted = not any(drawing.done() for drawing in drawings)
        for drawing in drawings:
            drawing.cancel()
        await asyncio.gather(*drawings, return_exceptions=True)
        workspace = await metric(client, "ascend_vl_drawing_workspace_bytes")
        ratios = {
            f"{what}_{name}_ratio": of(with_drawings) / (of(without) + of(slices))
            for what, without, with_drawings in (("gap", gaps, gaps_beside), ("first_token", firsts, firsts_beside))
            for name, of in (("median", statistics.median), ("p95", ninety_five))
        }
        return {
            "same_tokens": alone == beside,
            "drawings_outlasted_chat": outlasted,
            "slices_meanwhile": after - before,
            **ratios,
            "memory_ratio": peak(server.process) / (memory + workspace),
            "memory_growth": peak(server.process) / memory,
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--size", default="512x512")
    parser.add_argument("--tokens", type=int, default=60)
    parser.add_argument("--extra", default="", help="further vLLM options, for example --extra=--no-async-scheduling")
    parser.add_argument("--out", type=Path, help="write the result as JSON")
    args = parser.parse_args()
    from ascend_vl.plan import Wishes
    from ascend_vl.serve.process import running

    with running(args.model, Wishes(extra=tuple(args.extra.split()))) as server:
        result = asyncio.run(measure(server, args.size, args.tokens))
    print(json.dumps(result, indent=2))
    if args.out:
        args.out.write_text(json.dumps({"schema": 1, **result}, indent=2))
    asked = {"gap_median_ratio": 1.1, "gap_p95_ratio": 1.1, "first_token_median_ratio": 1.1, "memory_ratio": 1.05}
    good = result["same_tokens"] and all(result[name] <= bound for name, bound in asked.items())
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
