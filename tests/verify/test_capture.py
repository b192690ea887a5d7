"""Capture from servers of every kind, and the faults of a server that compare must then catch."""

import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from PIL import Image

from ascend_vl.errors import AscendVLError
from ascend_vl.verify import capture, report, requirements, targets
from ascend_vl.verify.comparison import compare
from ascend_vl.verify.runs import read_run

FAKE = Path(__file__).with_name("fake_server.py")


@pytest.fixture
def serve():
    """serve("mode") starts the fake server and gives its URL."""
    processes = []

    def start(mode):
        process = subprocess.Popen([sys.executable, FAKE, mode], stdout=subprocess.PIPE, text=True)
        processes.append(process)
        return f"http://127.0.0.1:{int(process.stdout.readline())}"

    yield start
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def cases(tmp_path):
    """Two cases with a picture, one without."""
    Image.new("RGB", (32, 32), (200, 0, 0)).save(tmp_path / "red.png")
    Image.new("RGB", (32, 32), (0, 0, 200)).save(tmp_path / "blue.png")
    lines = [
        {"id": "red", "images": ["red.png"], "prompt": "What?", "max_tokens": 8, "key_fields": ["a"]},
        {"id": "both", "images": ["red.png", "blue.png"], "prompt": "比较"},
        {"id": "text", "prompt": "Hello"},
    ]
    path = tmp_path / "cases.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def record(url, cases, out, **options):
    return capture.capture(targets.parse(url), cases, out, capture.Options(**options))


def test_everything_a_vllm_server_tells_is_recorded(serve, cases, tmp_path):
    url = serve("vllm")
    run = record(url, cases, tmp_path / "run", concurrency=2)
    answer = run.answers["red"]
    assert bytes(answer.token_ids).decode() == answer.text
    assert answer.logprobs[0][0] == (answer.token_ids[0], -0.1)
    assert answer.stages["prompt_ids"]
    assert answer.missing["tower"] == "the server does not show it"
    assert answer.missing["image_bytes"] == "the server does not say how it read the picture"
    assert run.answers["text"].missing["tower"] == "the case has no picture"
    assert run.info["versions"] == {"vllm": "9.9"}
    assert run.info["statuses"] == ["installed", "started", "text answered", "image answered", "repeated", "concurrent"]
    assert run.cases["red"]["max_tokens"] == 8 and run.cases["both"]["max_tokens"] == 128
    assert report.check(tmp_path / "run") == []
    assert len(list((tmp_path / "run" / "images").iterdir())) == 2


def test_every_sampling_field_is_sent_and_recorded(serve, cases, tmp_path):
    url = serve("vllm")
    run = record(url, cases, tmp_path / "run", repeats=0)
    sent = httpx.get(f"{url}/seen").json()["requests"][0]
    wanted = {
        **{"temperature": 0, "top_p": 1, "n": 1, "presence_penalty": 0, "frequency_penalty": 0, "seed": 0, "stop": []},
        **{"top_k": -1, "min_p": 0, "repetition_penalty": 1, "length_penalty": 1, "min_tokens": 0, "ignore_eos": False},
        "skip_special_tokens": True,
    }
    assert {name: sent[name] for name in wanted} == wanted == run.info["sampling"]
    assert [part["type"] for part in sent["messages"][0]["content"]] == ["image_url", "text"]


def test_a_server_that_knows_only_openai_fields_is_asked_with_those(serve, cases, tmp_path):
    run = record(serve("plain"), cases, tmp_path / "run")
    assert "top_k" not in run.info["sampling"] and run.info["sampling"]["temperature"] == 0
    assert run.answers["red"].token_ids is None
    assert run.answers["red"].missing["token_ids"] == "the server does not return token ids"


def test_the_same_server_twice_compares_equal(serve, cases, tmp_path):
    url = serve("vllm")
    a, b = record(url, cases, tmp_path / "a"), record(url, cases, tmp_path / "b")
    assert compare(a, b, requirements.of_recipe("default"))["verdict"] == "pass"


def test_a_server_that_answers_another_requests_text_is_caught(serve, cases, tmp_path):
    good = record(serve("vllm"), cases, tmp_path / "good")
    late = record(serve("late"), cases, tmp_path / "late")
    result = compare(good, late, requirements.of_recipe("default"))
    assert result["verdict"] == "fail"
    # The request before was another one; the repeat is not like the first answer either.
    assert result["self_agreement"]["candidate"]["differing"]
    assert {case["metrics"]["numbers_match"] for case in result["cases"]} == {0.0}


def test_a_server_that_wavers_is_measured_against_itself(serve, cases, tmp_path):
    run = record(serve("jitter"), cases, tmp_path / "run", repeats=2)
    result = compare(run, run, requirements.of_recipe("default"))
    agreement = result["self_agreement"]["base"]
    assert agreement["repeats"] == 6
    assert agreement["token_match"] < 1
    assert sorted(agreement["differing"]) == ["both", "red", "text"]


def test_a_swapped_picture_changes_the_question_and_fails(serve, cases, tmp_path):
    url = serve("vllm")
    good = record(url, cases, tmp_path / "good")
    (tmp_path / "blue.png").rename(tmp_path / "red.png")
    Image.new("RGB", (32, 32), (0, 0, 200)).save(tmp_path / "blue.png")
    result = compare(good, record(url, cases, tmp_path / "swapped"), requirements.of_recipe("default"))
    assert (result["verdict"], result["asked_otherwise"]) == ("fail", ["red", "both"])
    assert result["cases"][0]["first_difference"] == "request"


@pytest.mark.parametrize(("mode", "code"), [("crash", "server-refused"), ("key", "server-refused")])
def test_a_server_that_does_not_answer_is_no_verdict(serve, cases, tmp_path, mode, code):
    with pytest.raises(AscendVLError) as caught:
        record(serve(mode), cases, tmp_path / "run")
    assert (caught.value.code, caught.value.exit_code) == (code, 2)


def test_a_key_is_sent_and_never_recorded(serve, cases, tmp_path):
    record(serve("key"), cases, tmp_path / "run", api_key="secret")
    for path in (tmp_path / "run").rglob("*.json*"):
        assert "secret" not in path.read_text()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ({"prompt": "x"}, "`id`"),
        ({"id": "a"}, "`prompt`"),
        ({"id": "a", "prompt": "x", "images": "red.png"}, "`images`"),
        ({"id": "a", "prompt": "x", "max_tokens": 0}, "`max_tokens`"),
        ({"id": "a", "prompt": "x", "max_tokens": True}, "`max_tokens`"),
    ],
)
def test_a_bad_case_is_named_with_its_line(tmp_path, line, why):
    path = tmp_path / "bad.jsonl"
    path.write_text(json.dumps({"id": "ok", "prompt": "x"}) + "\n" + json.dumps(line) + "\n")
    with pytest.raises(AscendVLError) as caught:
        capture.read_cases(path)
    assert "Line 2" in caught.value.why.en and why in caught.value.why.en


def test_a_missing_picture_is_named(tmp_path):
    path = tmp_path / "cases.jsonl"
    path.write_text(json.dumps({"id": "a", "prompt": "x", "images": ["gone.png"]}))
    with pytest.raises(AscendVLError) as caught:
        capture.read_cases(path)
    assert caught.value.code == "image-missing"


def test_a_run_reads_back_as_it_was_written(serve, cases, tmp_path):
    run = record(serve("vllm"), cases, tmp_path / "run")
    again = read_run(tmp_path / "run")
    assert (again.info, again.cases, again.answers) == (run.info, run.cases, run.answers)


def test_a_server_that_never_answers_for_prompt_logprobs_is_recorded_as_such(serve, cases, tmp_path, monkeypatch):
    from ascend_vl.verify import remote

    monkeypatch.setattr(remote, "FORCED", httpx.Timeout(0.3))
    first = json.loads(cases.read_text().splitlines()[0])["id"]
    options = capture.Options(forced={first: ("abc", [97, 98, 99])}, repeats=0)
    run = capture.capture(targets.parse(serve("mute")), cases, tmp_path / "run", options)
    assert "did not answer a request for prompt_logprobs" in run.answers[first].missing["forced"]
    assert "forced" not in run.answers[first].stages
