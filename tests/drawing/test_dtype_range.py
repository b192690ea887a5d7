"""float16 and a residual stream that outgrows it: found before the first forward pass, and cured exactly."""

from pathlib import Path
from typing import Any

import bare
import httpx
import numpy as np
import oracle
import pytest
import torch

from ascend_vl.drawing import client as drawing
from ascend_vl.drawing import dtype_range
from ascend_vl.drawing.job import to_wire
from ascend_vl.models import residual_scale

pytestmark = pytest.mark.engine

# As in the emulated runs in float16.
BOUNDS = (0.02, 0.02, 6)
# The stored values' checkpoint stays below 100; times this it is beyond 65504.
GROWTH = 2**13
INTO_THE_STREAM = ("embed_tokens", "o_proj", "down_proj", "x_embedder.proj2", "t_embedder1.mlp.2")
QUESTION = "once upon a time there was"


def plant(tiny: Path, folder: Path) -> Path:
    """The same network with a residual stream GROWTH times larger, its norms' epsilons aside; not for pictures."""
    from safetensors.torch import load_file, save_file

    for file in tiny.iterdir():
        if file.suffix != ".safetensors" and file.name != "model.safetensors.index.json":
            (folder / file.name).symlink_to(file)
    tensors = {name: x for shard in tiny.glob("*.safetensors") for name, x in load_file(shard).items()}
    for name, x in tensors.items():
        if any(part in name for part in INTO_THE_STREAM):
            tensors[name] = x * GROWTH
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def planted(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plant(tiny, tmp_path_factory.mktemp("planted"))


def test_in_float32_a_smaller_stream_changes_no_bit(tiny: Path, tokenizer: Any, image_processor: Any) -> None:
    jobs = [oracle.job(case, tokenizer, image_processor) for case in oracle.CASES]
    plain, smaller = bare.load(tiny), bare.load(tiny)
    residual_scale.shrink(smaller.model_runner.get_model(), 8)
    residual_scale.shrink(smaller.model_runner.get_model(), 32)
    assert smaller._drawing().decoder.scale == 256
    for job in jobs:
        before, after = bare.draw(plain, job), bare.draw(smaller, job)
        assert all(np.array_equal(before[name], after[name]) for name in before)


def test_what_is_no_power_of_two_is_refused(worker: bare.BareWorker) -> None:
    with pytest.raises(ValueError, match="power of two"):
        residual_scale.shrink(worker.model_runner.get_model(), 48)


def test_an_overflow_is_found_and_cured(
    planted: Path, tokenizer: Any, image_processor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = bare.load(planted, dtype="float16")
    job = oracle.job("t2i", tokenizer, image_processor)
    with monkeypatch.context() as blind:
        blind.setattr(dtype_range, "found", lambda model: None)
        half.drawing_begin("a", to_wire(job), ["a"])
        status: dict[str, Any] = {"state": "running"}
        while status["state"] == "running":
            status = half.drawing_advance("a", 1000)
        assert status["code"] == "drawing-not-finite"
    assert not max(dtype_range.look(half.model_runner.get_model()).values()) < torch.finfo(torch.float16).max

    del half.__dict__["_drawing_state"]
    found = half.drawing_open()["range"]
    assert found["safe"] and found["scale"] > 1 and max(found["largest"].values()) < 65504 / dtype_range.MARGIN
    oracle.check(bare.draw(half, job), "t2i", *BOUNDS)
    assert dtype_range.found(half.model_runner.get_model()) == found


def test_nothing_is_done_where_the_stream_fits(tiny: Path) -> None:
    half = bare.load(tiny, dtype="float16")
    found = dtype_range.settle(half.model_runner.get_model())
    assert found["safe"] and found["scale"] == 1
    assert set(found["largest"]) == {"attention", "mlp", "residual", "prediction"} and found["largest"]["mlp"] > 0.1


def test_an_overflow_elsewhere_is_told_and_not_cured(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from ascend_vl.drawing import session

    half = bare.load(tiny, dtype="float16")
    monkeypatch.setattr(session, "clean_patches", lambda model, hidden: torch.full((4, 3072), torch.inf))
    found = dtype_range.settle(half.model_runner.get_model())
    assert not found["safe"] and found["largest"]["prediction"] == np.inf


def test_a_look_that_fails_stops_nothing(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    half = bare.load(tiny, dtype="float16")

    def fail(model: Any) -> None:
        raise RuntimeError("no memory")

    monkeypatch.setattr(dtype_range, "look", fail)
    assert half.drawing_open()["range"] == {"safe": None, "scale": 1, "largest": {}}


def test_only_float16_is_watched_and_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Model(torch.nn.Module):
        def __init__(self, dtype: torch.dtype) -> None:
            super().__init__()
            norm = torch.nn.Module()
            norm.weight = torch.nn.Parameter(torch.ones(1, dtype=dtype))
            self.language_model = torch.nn.Module()
            self.language_model.model = torch.nn.Module()
            self.language_model.model.norm = norm

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    looked = []
    monkeypatch.setattr(dtype_range, "settle", lambda model: looked.append(model._dtype) or model)
    for dtype in (torch.bfloat16, torch.float16):
        model = Model(dtype)
        model._dtype = dtype
        dtype_range.watch(model)
        for _ in range(2):
            model(torch.zeros(1))
    assert looked == [torch.float16]


def test_a_server_in_float16_chats_and_draws_as_in_float32(planted: Path, tiny_server: Any) -> None:
    from ascend_vl.plan import Wishes
    from ascend_vl.serve.process import running

    with running(planted, Wishes(dtype="float16", max_model_len=1024)) as server:
        with server.client() as client:
            can = client.get("/v1/models").json()["data"][0]["ascend_vl"]["drawing"]["float16"]
            assert can["safe"] and can["residual_scale"] > 1
            asked = {"size": "96x64", "seed": 7, "steps": 5, "recipe": "full", "trace": True}
            answer = drawing.draw(client, oracle.meta("t2i")["prompt"], **asked)
            ours = likeliest(client, server.model)
        with tiny_server.client() as client:
            theirs = likeliest(client, tiny_server.model)
    import io

    with np.load(io.BytesIO(answer.trace or b"")) as arrays:
        oracle.check({name: arrays[name] for name in arrays.files}, "t2i", *BOUNDS)
    shared = ours.keys() & theirs.keys()
    assert len(shared) >= 4 and max(abs(ours[token] - theirs[token]) for token in shared) < 0.05


def likeliest(client: httpx.Client, model: str) -> dict[str, float]:
    """The five likeliest next tokens with their logprobs."""
    body = {"model": model, "prompt": QUESTION, "max_tokens": 1, "temperature": 0, "logprobs": 5}
    return client.post("/v1/completions", json=body).json()["choices"][0]["logprobs"]["top_logprobs"][0]
