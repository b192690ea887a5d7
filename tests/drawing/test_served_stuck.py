"""A slice that never ends: the server says that it is ill, and ends as a failure with all its processes."""

import asyncio
from pathlib import Path

import psutil
import pytest
from test_served import asynchronous, draw

pytestmark = pytest.mark.engine

FAULTS = Path(__file__).parent / "faults"
STUCK = 699


def test_a_stuck_slice_ends_the_server_as_a_failure(
    tiny: Path, engine_environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ascend_vl.plan import Wishes
    from ascend_vl.serve.process import running

    monkeypatch.setenv("PYTHONPATH", str(FAULTS))
    monkeypatch.setenv("ASCEND_VL_DRAWING_STUCK", "2")

    async def health(server: object) -> None:
        async with asynchronous(server) as client:
            assert (await client.get("/health")).status_code == 200
            drawing = asyncio.ensure_future(draw(client, size="64x64", seed=STUCK))
            while (await client.get("/health")).status_code == 200:
                await asyncio.sleep(0.2)
            answer = await draw(client, size="64x64", seed=1)
            assert answer.status_code == 503 and answer.json()["error"]["code"] == "drawing-stuck"
            await asyncio.wait({drawing})

    with running(tiny, Wishes(api_key="test-key", max_model_len=1024)) as server:
        family = psutil.Process(server.process.pid).children(recursive=True)
        asyncio.run(health(server))
        assert server.process.wait(timeout=120) == 1
        assert family and not psutil.wait_procs(family, timeout=30)[1]
