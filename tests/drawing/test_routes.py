"""The HTTP surface over pretended workers: what clients see, not what is drawn."""

import base64
import io
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import oracle
import pytest
from fakes import FakeWorkers
from PIL import Image
from starlette.applications import Starlette
from starlette.testclient import TestClient

from ascend_vl.drawing import bench, routes, service, text_head
from ascend_vl.drawing.lane import LaneSettings
from ascend_vl.models import names

OVERRIDES = {"architectures": [names.HIDREAM_O1], names.DRAWING_KEY: True}
SMALL = {"prompt": "a red cube", "size": "64x32", "steps": 2, "recipe": "dev", "seed": 5}


class Models:
    base_model_paths = (SimpleNamespace(name="tiny"),)

    async def show_available_models(self) -> Any:
        return SimpleNamespace(model_dump=lambda: {"object": "list", "data": [{"id": "tiny", "object": "model"}]})


class Engine:
    """As much of an AsyncLLM as drawing uses."""

    def __init__(self, workers: FakeWorkers, directory: Any, **parallel: Any) -> None:
        import json as files

        key = {names.DRAWING_KEY: parallel.pop("drawing", True)}
        config = files.loads((directory / "config.json").read_text()) | key
        hf = SimpleNamespace(to_dict=lambda: config, **key)
        settings = {"data_parallel_size": 1, "pipeline_parallel_size": 1, "distributed_executor_backend": "uni"}
        self.vllm_config = SimpleNamespace(
            model_config=SimpleNamespace(hf_config=hf, model=str(directory), tokenizer=str(directory)),
            parallel_config=SimpleNamespace(**{**settings, **parallel}),
        )
        self._workers = workers

    async def collective_rpc(
        self, method: str, timeout: Any = None, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        assert timeout is None
        return await self._workers.rpc(method, args)

    async def generate(self, prompt: str, sampling: Any, request_id: str) -> Any:
        yield SimpleNamespace(outputs=[SimpleNamespace(token_ids=self.said)])

    said: tuple[int, ...] = (151645,)


def app(tiny: Any, workers: FakeWorkers, overrides: Any = OVERRIDES, **parallel: Any) -> Starlette:
    args = SimpleNamespace(hf_overrides=overrides, api_server_count=1)

    async def start() -> None:
        made.state.openai_serving_models = Models()
        await routes.init_state(Engine(workers, tiny, **parallel), made.state, args)

    import contextlib

    @contextlib.asynccontextmanager
    async def lifespan(_: Any) -> Any:
        await start()
        yield

    made = Starlette(lifespan=lifespan)
    routes.attach(made, args)
    return made


@pytest.fixture(autouse=True)
def loaded_once(monkeypatch: pytest.MonkeyPatch, tokenizer: Any, image_processor: Any) -> None:
    """Each server would read the 150,000-word tokenizer again."""
    monkeypatch.setattr(service, "_load", lambda model_config: (tokenizer, image_processor))


@pytest.fixture
def workers() -> FakeWorkers:
    return FakeWorkers()


@pytest.fixture
def client(tiny: Any, workers: FakeWorkers) -> Iterator[TestClient]:
    with TestClient(app(tiny, workers)) as made:
        yield made


def picture_of(item: dict[str, Any]) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(item["b64_json"])))


def png(width: int = 40, height: int = 30) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (width, height), (1, 200, 3)).save(out, "PNG")
    return out.getvalue()


def url(data: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(data).decode()


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line[5:]) for line in text.splitlines() if line.startswith("data:")]


def test_a_generation(client: TestClient) -> None:
    answer = client.post("/v1/images/generations", json={**SMALL, "n": 2, "model": "tiny"})
    body = answer.json()
    assert answer.status_code == 200, body
    assert [item["seed"] for item in body["data"]] == [5, 6]
    assert body["size"] == "64x32" and body["recipe"] == "dev" and body["output_format"] == "png"
    assert body["usage"]["output_tokens"] == 4 and body["usage"]["input_tokens_details"]["image_tokens"] == 0
    assert body["usage"]["total_tokens"] == body["usage"]["input_tokens"] + 4
    made = picture_of(body["data"][0])
    assert made.size == (64, 32) and made.getpixel((0, 0)) == (120, 120, 120)


def test_every_picture_says_that_it_is_generated(client: TestClient) -> None:
    for fmt in ("png", "jpeg", "webp"):
        body = client.post(
            "/v1/images/generations", json={**SMALL, "output_format": fmt, "output_compression": 80}
        ).json()
        made = picture_of(body["data"][0])
        assert made.format == fmt.upper()
        text = str(made.info) + str(dict(made.getexif())) + str(dict(made.getexif().get_ifd(0x8769)))
        assert "AIGC" in text and "trainedAlgorithmicMedia" in text
        assert "red cube" not in text


def test_a_visible_label_on_request(client: TestClient) -> None:
    plain, labelled = (
        np.asarray(picture_of(client.post("/v1/images/generations", json={**SMALL, "label": label}).json()["data"][0]))
        for label in (False, True)
    )
    changed = (plain != labelled).any(axis=2)
    assert changed.any() and not changed[:20].any()


@pytest.mark.parametrize("form", ["multipart", "data url", "base64", "openai json"])
def test_an_edit_in_every_form(client: TestClient, form: str) -> None:
    fields = {"prompt": "make it blue", "size": "64x64", "steps": 2, "seed": 1}
    if form == "multipart":
        answer = client.post(
            "/v1/images/edits", data={k: str(v) for k, v in fields.items()}, files=[("image[]", ("a.png", png()))] * 2
        )
    else:
        given = {
            "data url": {"image": url(png())},
            "base64": {"image": [base64.b64encode(png()).decode()] * 2},
            "openai json": {"images": [{"image_url": url(png())}, {"image_url": url(png())}]},
        }[form]
        answer = client.post("/v1/images/edits", json={**fields, **given})
    body = answer.json()
    assert answer.status_code == 200, body
    assert body["usage"]["input_tokens_details"]["image_tokens"] > 100
    assert picture_of(body["data"][0]).size == (64, 64)


def test_a_layout_and_kept_aspect(client: TestClient) -> None:
    base = {"prompt": "x", "image": url(png()), "steps": 1, "seed": 1}
    body = client.post("/v1/images/edits", json={**base, "size": "64x64", "layout": [[0.1, 0.9, 0.1, 0.9]]}).json()
    assert body["size"] == "64x64"
    refused = client.post("/v1/images/edits", json={**base, "layout": [[0.1, 0.1, 0, 1]]})
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "layout"


def test_a_stream_with_previews_and_progress(client: TestClient, workers: FakeWorkers) -> None:
    answer = client.post(
        "/v1/images/generations", json={**SMALL, "steps": 6, "stream": True, "partial_images": 2, "progress": True}
    )
    got = events(answer.text)
    kinds = [event["type"] for event in got]
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert kinds.count("ascend_vl.progress") == 6 and kinds[-1] == "image_generation.completed"
    previews = [event for event in got if event["type"] == "image_generation.partial_image"]
    assert [event["partial_image_index"] for event in previews] == [0, 1]
    assert picture_of(previews[0]).getpixel((0, 0)) == (60, 60, 60)
    assert got[-1]["seed"] == 5 and got[-1]["usage"]["output_tokens"] == 2
    assert workers.sessions == {}


def test_a_checkpoint_that_was_not_trained_to_edit_says_so(tiny: Any, tmp_path: Path, workers: FakeWorkers) -> None:
    shutil.copytree(tiny, tmp_path / "draws")
    config = json.loads((tiny / "config.json").read_text())
    config["hidream_o1"] = {"recipe": "dev", "tasks": ["image_generation"]}
    (tmp_path / "draws" / "config.json").write_text(json.dumps(config))
    with TestClient(app(tmp_path / "draws", workers)) as client:
        (card,) = client.get("/v1/models").json()["data"]
        assert card["ascend_vl"]["capabilities"] == ["chat", "image_generation"]
        body = {"prompt": "make it blue", "image": url(png()), "size": "64x64"}
        refused = client.post("/v1/images/edits", json=body)
        assert refused.status_code == 400 and refused.json()["error"]["code"] == "drawing-task"
        assert not [method for method, _ in workers.calls if method == "drawing_begin"]
        assert client.post("/v1/images/edits", json={**body, "trace": True}).status_code == 200


def test_edits_stream_under_their_own_names(client: TestClient) -> None:
    body = {"prompt": "x", "image": url(png()), "size": "64x64", "steps": 2, "stream": True, "partial_images": 1}
    kinds = [event["type"] for event in events(client.post("/v1/images/edits", json=body).text)]
    assert kinds == ["image_edit.partial_image", "image_edit.completed"]


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"size": "100x100"}, "size"),
        ({"size": "big"}, "size"),
        ({"n": 0}, "n"),
        ({"n": 10**9}, "n"),
        ({"steps": 10**9}, "steps"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**64}, "seed"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": "<|image_pad|>"}, "prompt"),
        ({"prompt": "x" * 40000}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ({"response_format": "url"}, "response_format"),
        ({"output_format": "gif"}, "output_format"),
        ({"output_compression": 101}, "output_compression"),
        ({"background": "transparent"}, "background"),
        ({"quality": "low"}, "quality"),
        ({"style": "vivid"}, "style"),
        ({"recipe": "pro"}, "recipe"),
        ({"guidance_scale": "NaN"}, "guidance_scale"),
        ({"partial_images": 2}, "partial_images"),
        ({"stream": True, "n": 2}, "n"),
        ({"mask": "x"}, "mask"),
        ({"surprise": 1}, "surprise"),
        ({"scheduler": "ddim"}, "scheduler"),
        ({"timesteps": [3, 9]}, "timesteps"),
    ],
)
def test_bad_values_are_400_with_the_fields_name(client: TestClient, change: dict[str, Any], param: str) -> None:
    answer = client.post("/v1/images/generations", json={**SMALL, **change})
    error = answer.json()["error"]
    assert answer.status_code == 400 and error["param"] == param and error["type"] == "invalid_request_error"
    assert error["code"] and error["message"]


def test_an_impossible_size_names_the_nearest(client: TestClient) -> None:
    message = client.post("/v1/images/generations", json={**SMALL, "size": "100x530"}).json()["error"]["message"]
    assert "96x544" in message


def test_snapping_is_only_on_request(client: TestClient) -> None:
    base = {"prompt": "x", "steps": 1, "seed": 1}
    assert client.post("/v1/images/generations", json={**base, "size": "512x512"}).json()["size"] == "512x512"
    snapped = client.post("/v1/images/generations", json={**base, "size": "100x100", "snap": True, "steps": 1})
    assert snapped.json()["size"] == "2048x2048"


@pytest.mark.parametrize(
    "body",
    [
        {"image": "https://example.org/a.png"},
        {"image": "file:///etc/passwd"},
        {"image": "!!!"},
        {"image": {"image_url": {"url": 5}}},
        {"image": "data:image/png;base64," + base64.b64encode(png()[:50]).decode()},
        {"image": []},
        {},
        {"image": [base64.b64encode(png()).decode()] * 11},
        {"image": url(png()), "mask": url(png())},
    ],
)
def test_unusable_pictures_are_400_and_tell_nothing_of_the_machine(client: TestClient, body: dict[str, Any]) -> None:
    answer = client.post("/v1/images/edits", json={"prompt": "x", "size": "64x64", **body})
    assert answer.status_code == 400
    assert not re.search(r"0x[0-9a-f]{6,}|/home|/root|/work|/tmp|Traceback", answer.text)


def test_pixels_of_all_references_together_are_bounded_before_decoding(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "MAX_PIXELS", 2000)
    monkeypatch.setattr(routes.images, "decode", lambda data: pytest.fail("decoded"))
    answer = client.post("/v1/images/edits", json={"prompt": "x", "image": [base64.b64encode(png()).decode()] * 2})
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "image"


@pytest.mark.parametrize("path", ["generations", "edits"])
def test_pictures_beyond_the_workspace_are_refused_before_anything_of_their_size_is_made(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(bench, "build_job", lambda *given, **named: pytest.fail("built"))
    monkeypatch.setattr(bench.references, "prepare", lambda *given, **named: pytest.fail("resized"))
    asked = {"prompt": "x", "size": "999968x999968"} | ({"image": url(png())} if path == "edits" else {})
    answer = client.post(f"/v1/images/{path}", json=asked)
    assert answer.status_code == 400 and answer.json()["error"]["code"] == "drawing-too-large"


def test_large_bodies_are_413(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "MAX_BODY", 100)
    answer = client.post("/v1/images/generations", json={"prompt": "x" * 200})
    assert answer.status_code == 413 and answer.json()["error"]["code"] == "request-too-large"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b"[" * 100_000])
def test_bodies_that_are_no_object_are_400(client: TestClient, content: bytes) -> None:
    for path in ("generations", "edits"):
        assert client.post(f"/v1/images/{path}", content=content).status_code == 400


def test_an_unknown_model_is_404(client: TestClient) -> None:
    answer = client.post("/v1/images/generations", json={**SMALL, "model": "dall-e-3"})
    assert answer.status_code == 404 and answer.json()["error"]["code"] == "model_not_found"


def test_a_full_lane_is_429_with_retry_after(tiny: Any, workers: FakeWorkers) -> None:
    with TestClient(app(tiny, workers)) as client:
        client.app.state.ascend_vl_drawing.lane.settings = LaneSettings(active=1, waiting=0)
        answer = client.post("/v1/images/generations", json={**SMALL, "n": 2})
        assert answer.status_code == 429 and int(answer.headers["retry-after"]) >= 1
        assert answer.json()["error"]["type"] == "rate_limit_error"
        assert client.post("/v1/images/generations", json=SMALL).status_code == 200


def test_a_failure_in_the_workers_is_an_error_not_a_picture(tiny: Any) -> None:
    failing = FakeWorkers(
        ranks=2,
        fail=lambda method, rank, name: (
            {"state": "failed", "code": "drawing-memory", "why": "secret 0x7f00deadbeef"}
            if method == "drawing_advance" and rank == 1
            else None
        ),
    )
    with TestClient(app(tiny, failing)) as client:
        answer = client.post("/v1/images/generations", json=SMALL)
        assert answer.status_code == 503 and answer.json()["error"]["code"] == "drawing-memory"
        assert "0x7f" not in answer.text
        streamed = events(client.post("/v1/images/generations", json={**SMALL, "stream": True}).text)
        assert streamed[-1]["error"]["code"] == "drawing-memory"
        assert failing.sessions == {}


def test_the_lane_can_be_looked_at(client: TestClient) -> None:
    shown = client.get("/v1/ascend_vl/drawing").json()
    worker = {"state": "open", "sessions": [], "allocated": 0}
    assert shown == {"active": 0, "waiting": 0, "stuck": False, "slice_seconds": [], "workers": [worker]}
    client.post("/v1/images/generations", json=SMALL)
    assert len(client.get("/v1/ascend_vl/drawing").json()["slice_seconds"]) > 1


def test_models_tell_what_they_can_do(client: TestClient) -> None:
    card = client.get("/v1/models").json()["data"][0]["ascend_vl"]
    assert card["capabilities"] == ["chat", "image_generation", "image_edit"]
    assert card["drawing"]["default_size"] == "2048x2048" and card["drawing"]["size_multiple_of"] == 32


@pytest.mark.parametrize(
    ("parallel", "word"),
    [
        ({"data_parallel_size": 2}, "Data parallel"),
        ({"pipeline_parallel_size": 2}, "Pipeline"),
        ({"distributed_executor_backend": "ray"}, "ray"),
        ({"drawing": False}, "started with drawing off"),
        ({"drawing": False, "data_parallel_size": 2}, "Data parallel"),
    ],
)
def test_where_drawing_cannot_run_chat_goes_on_and_the_reason_is_said(
    tiny: Any, parallel: dict[str, Any], word: str
) -> None:
    with TestClient(app(tiny, FakeWorkers(), **parallel)) as client:
        card = client.get("/v1/models").json()["data"][0]["ascend_vl"]
        assert card["capabilities"] == ["chat"] and word in card["drawing"]["why"]
        answer = client.post("/v1/images/generations", json=SMALL)
        assert answer.status_code == 503 and word in answer.json()["error"]["message"]


@pytest.mark.parametrize("overrides", [None, {}, {"architectures": [names.QWEN3_VL]}, "{"])
def test_other_models_have_no_such_routes(tiny: Any, overrides: Any) -> None:
    with TestClient(app(tiny, FakeWorkers(), overrides)) as client:
        assert client.post("/v1/images/generations", json=SMALL).status_code == 404
        assert client.get("/v1/models").status_code == 404


def test_a_text_head_that_says_nothing_is_told(client: TestClient) -> None:
    pytest.importorskip("vllm")
    import time

    for _ in range(200):
        text = client.get("/v1/models").json()["data"][0]["ascend_vl"]["text"]
        if text is not None:
            break
        time.sleep(0.05)
    assert text == {"degenerate": True, "tokens": [151645]}


@pytest.mark.parametrize(
    ("tokens", "degenerate"),
    [([], True), ([9], True), ([5] * 8, True), ([5, 9], False), ([5, 6, 7, 5, 6, 7, 5, 6], False)],
)
def test_what_counts_as_saying_nothing(tokens: list[int], degenerate: bool) -> None:
    assert text_head.is_degenerate(tokens, {9}) is degenerate


def test_prompts_are_not_logged(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(0)
    client.post("/v1/images/generations", json={**SMALL, "prompt": "unspeakable"})
    client.post("/v1/images/generations", json={**SMALL, "prompt": "unspeakable", "size": "7x7"})
    assert "unspeakable" not in caplog.text


def test_the_official_client_works(tiny: Any, workers: FakeWorkers) -> None:
    import openai

    with TestClient(app(tiny, workers)) as http:
        client = openai.OpenAI(api_key="none", base_url="http://testserver/v1", http_client=http)
        made = client.images.generate(model="tiny", prompt="a cube", size="64x32", n=1, extra_body={"steps": 2})
        assert made.data and picture_of({"b64_json": made.data[0].b64_json}).size == (64, 32)
        assert made.usage and made.usage.output_tokens == 2
        edited = client.images.edit(
            model="tiny",
            image=[io.BytesIO(png()), io.BytesIO(png())],
            prompt="blue",
            size="64x64",
            extra_body={"steps": 2},
        )
        assert edited.data and edited.data[0].b64_json
        stream = client.images.generate(
            model="tiny", prompt="a cube", size="64x32", stream=True, partial_images=1, extra_body={"steps": 4}
        )
        assert [event.type for event in stream] == ["image_generation.partial_image", "image_generation.completed"]
        with pytest.raises(openai.BadRequestError) as refused:
            client.images.generate(model="tiny", prompt="a cube", size="33x33")  # type: ignore[call-overload]
        assert refused.value.param == "size" and refused.value.code == "drawing-size"
        assert client.models.list().data[0].id == "tiny"


def test_a_trace_comes_with_the_picture_on_request_and_within_bounds(client: TestClient) -> None:
    body = client.post("/v1/images/generations", json={**SMALL, "trace": True}).json()
    assert base64.b64decode(body["data"][0]["trace"]) == b"npz"
    assert "trace" not in client.post("/v1/images/generations", json=SMALL).json()["data"][0]
    refused = client.post("/v1/images/generations", json={**SMALL, "trace": True, "size": "2048x2048", "steps": 50})
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "trace"


def test_metrics_count_what_happened(client: TestClient) -> None:
    from prometheus_client import generate_latest

    client.post("/v1/images/generations", json=SMALL)
    shown = generate_latest().decode()
    assert re.search(r'ascend_vl_drawing_total\{outcome="drawn"\} [1-9]', shown)
    assert "ascend_vl_drawing_slice_seconds_bucket" in shown and "ascend_vl_drawing_active 0.0" in shown


def test_the_stored_reference_picture_is_taken_as_sent(client: TestClient) -> None:
    data = (oracle.DATA / "ref0.png").read_bytes()
    body = client.post(
        "/v1/images/edits", json={"prompt": "make it blue", "image": url(data), "size": "96x64", "steps": 1}
    )
    assert body.json()["usage"]["input_tokens_details"] == {"text_tokens": 35, "image_tokens": 132}
