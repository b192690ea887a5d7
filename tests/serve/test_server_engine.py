"""Our server as clients meet it: keys, status, pictures of every kind, refusals that kill nothing."""

import base64
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from ascend_vl import images
from ascend_vl.models import names
from ascend_vl.serve.process import RunningServer, group_alive

pytestmark = pytest.mark.engine

# Heap addresses, and paths of this machine.
LEAK = re.compile(r"0x[0-9a-fA-F]{4,}|/(?:work|root|home|usr|tmp|proc|etc)/")


@pytest.fixture
def client(tiny_server: RunningServer) -> Iterator[httpx.Client]:
    """With the key; afterwards the engine must still answer."""
    with tiny_server.client() as client:
        yield client
        answer = client.post("/v1/completions", json={"model": tiny_server.model, "prompt": "1", "max_tokens": 1})
        assert answer.status_code == 200
        assert group_alive(tiny_server.process.pid)


def our_routes(client: httpx.Client) -> list[tuple[str, str]]:
    """(method, path) of every route that our modules added, as the application lists them."""
    listed = client.get("/v1/ascend_vl/status").json()["api_server"]["routes"]
    return [(method, path) for path, methods in listed.items() for method in methods]


def chat(client: httpx.Client, model: str, *parts: dict[str, Any], tokens: int = 4) -> httpx.Response:
    content = [*parts, {"type": "text", "text": "what is this?"}]
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": tokens, "temperature": 0}
    return client.post("/v1/chat/completions", json={"model": model, **body})


def picture(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def encoded(image: Image.Image, form: str = "PNG", **options: Any) -> str:
    out = io.BytesIO()
    image.save(out, form, **options)
    return f"data:image/{form.lower()};base64,{base64.b64encode(out.getvalue()).decode()}"


def test_every_route_of_ours_wants_the_key(tiny_server: RunningServer, client: httpx.Client) -> None:
    routes = our_routes(client)
    assert {path for _, path in routes} >= {"/v1/ascend_vl/status", "/v1/images/generations"}
    with httpx.Client(base_url=tiny_server.url, trust_env=False) as stranger:
        for method, path in routes:
            for headers in ({}, {"Authorization": "Bearer wrong"}):
                assert stranger.request(method, path, headers=headers).status_code == 401, (method, path)


def test_status_says_what_is_active_in_each_worker(tiny_server: RunningServer, client: httpx.Client) -> None:
    status = client.get("/v1/ascend_vl/status").json()
    assert status["schema"] == 1
    assert status["model"]["architecture"] == [names.HIDREAM_O1]
    assert status["api_server"]["media_connector"] == names.MEDIA_CONNECTOR
    assert {item["name"].rpartition(".")[2] for item in status["api_server"]["replaced"]} == {
        "build_app",
        "init_app_state",
    }
    for item in status["api_server"]["replaced"]:
        for place in (item["original"], item["ours"]):
            file, _, line = place.rpartition(":")
            assert Path(file).is_file() and int(line) > 0
    (worker,) = status["workers"]
    assert worker["plugin"] and worker["drawing"] and worker["rank"] == 0
    assert worker["model_class"].endswith("ascend_hidream_o1.Qwen3VLForConditionalGeneration")
    assert worker["pid"] != status["api_server"]["pid"]
    assert not [outcome for outcome in worker["adaptations"] if outcome["state"] == "active"]
    assert status["video"] == "refused"
    assert tiny_server.api_key is not None and tiny_server.api_key not in json.dumps(status)


def test_each_form_of_a_picture_answers_like_its_normalised_png(
    tiny_server: RunningServer, client: httpx.Client
) -> None:
    rng = np.random.default_rng(1)
    base = Image.fromarray(rng.integers(0, 255, (40, 60, 3), dtype=np.uint8))
    turned = Image.Exif()
    turned[0x0112] = 6
    forms = {
        "jpeg, orientation 6": encoded(base, "JPEG", exif=turned.tobytes()),
        "rgba": encoded(base.convert("RGBA").rotate(30, expand=True)),
        "la": encoded(base.convert("LA").rotate(30, expand=True)),
        "palette": encoded(base.convert("P", palette=Image.Palette.ADAPTIVE), "GIF"),
        "16 bit": encoded(Image.fromarray(rng.integers(0, 65535, (40, 60), dtype=np.uint16))),
        "cmyk": encoded(base.convert("CMYK"), "JPEG"),
        "webp": encoded(base, "WEBP"),
        "one pixel": encoded(Image.new("RGB", (1, 1), (200, 10, 30))),
        "three rows": encoded(base.resize((90, 3))),
        "200 to 1": encoded(base.resize((600, 3))),
    }
    seen = set()
    for name, url in forms.items():
        normalised = encoded(images.load_image(url))
        answers = []
        for sent in (url, normalised):
            response = chat(client, tiny_server.model, picture(sent))
            assert response.status_code == 200, (name, response.text)
            answers.append(response.json()["choices"][0]["message"]["content"])
        assert answers[0] == answers[1], name
        seen.add(answers[0])
    assert len(seen) > 3


def cut_off() -> str:
    url = encoded(Image.fromarray(np.random.default_rng(2).integers(0, 255, (64, 64), dtype=np.uint8)))
    return url[: len("data:image/png;base64,") + 2000]


def bomb() -> str:
    return encoded(Image.new("1", (9000, 9000)))


@pytest.mark.parametrize(
    ("code", "make"),
    [
        ("image-damaged", cut_off),
        ("image-unreadable", lambda: "data:image/png;base64," + base64.b64encode(b"hello").decode()),
        ("image-unreadable", lambda: "data:image/png;base64,@@@@"),
        ("image-unreadable", lambda: "data:image/png"),
        ("image-aspect", lambda: encoded(Image.new("RGB", (1, 500)))),
        ("image-too-large", bomb),
        ("image-mode", lambda: encoded(Image.new("F", (8, 8)), "TIFF")),
        ("image-not-fetched", lambda: "file:///etc/passwd"),
        ("image-not-fetched", lambda: "http://127.0.0.1:9/nothing.png"),
        ("image-not-fetched", lambda: "ftp://example.invalid/x.png"),
    ],
)
def test_a_refused_picture_is_a_clear_400(
    tiny_server: RunningServer, client: httpx.Client, code: str, make: Any
) -> None:
    response = chat(client, tiny_server.model, picture(make()))
    assert response.status_code == 400, response.text
    message = response.json()["error"]["message"]
    assert code in message
    assert not LEAK.search(message.replace("/etc/passwd", "")), message


def test_a_refused_picture_among_good_ones_refuses_the_request_only(
    tiny_server: RunningServer, client: httpx.Client
) -> None:
    good, bad = picture(encoded(Image.new("RGB", (32, 32), "red"))), picture("data:image/png;base64,AAAA")
    assert chat(client, tiny_server.model, good, bad, good).status_code == 400
    assert chat(client, tiny_server.model, good, good, good).status_code == 200


def test_video_is_refused_in_words(tiny_server: RunningServer, client: httpx.Client) -> None:
    clip = io.BytesIO()
    frames = [Image.new("RGB", (32, 32), colour) for colour in ("red", "blue")]
    frames[0].save(clip, "GIF", save_all=True, append_images=frames[1:])
    url = "data:video/gif;base64," + base64.b64encode(clip.getvalue()).decode()
    response = chat(client, tiny_server.model, {"type": "video_url", "video_url": {"url": url}})
    assert response.status_code == 400
    assert "video" in response.json()["error"]["message"]


def test_ask_answers_from_a_url_about_several_pictures(tiny_server: RunningServer, tmp_path: Path) -> None:
    from ascend_vl.cli import ask

    paths = []
    for colour in ("red", "blue"):
        paths.append(tmp_path / f"{colour}.png")
        Image.new("RGB", (64, 64), colour).save(paths[-1])
    import typer

    app = typer.Typer()
    app.command()(ask.command)
    given = [tiny_server.url, "what?", "--max-tokens", "4", "--json"]
    for path in paths:
        given += ["--image", str(path)]
    refused = CliRunner().invoke(app, given)
    assert refused.exit_code == 2
    assert json.loads(refused.stdout)["error"]["code"] == "server-refused"
    answered = CliRunner().invoke(app, [*given, "--api-key", str(tiny_server.api_key)])
    assert answered.exit_code == 0, answered.output
    said = json.loads(answered.stdout)
    assert said["text"] and said["usage"]["completion_tokens"] == 4
    swapped = [*given[:5], *given[7:9], *given[5:7], "--api-key", str(tiny_server.api_key)]
    assert json.loads(CliRunner().invoke(app, swapped).stdout)["text"] != said["text"]
