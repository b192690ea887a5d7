"""Files and servers that are not what they should be: exit code 2, JSON stays JSON, never a traceback."""

import http.server
import json
import shutil
import threading

import pytest
from typer import Typer
from typer.testing import CliRunner

from ascend_vl.cli import ask, capture, compare, verify
from ascend_vl.cli import report as report_command

DEEP = '{"id":"a","text":"x","fields":' + "[" * 100_000 + "}"
LINES = {
    "a number beyond reading": '{"id":"a","text":"x","token_ids":[' + "9" * 5000 + "]}",
    "endless nesting": DEEP,
    "half a surrogate pair": '{"id":"a\\ud800","text":"x"}',
    "not a number": '{"id":"a","text":"x","fields":{"v":NaN}}',
    "logprobs no list": '{"id":"a","text":"x","logprobs":5}',
    "logprobs of texts": '{"id":"a","text":"x","logprobs":[[["y","x"]]]}',
    "repeats no list": '{"id":"a","text":"x","repeats":5}',
    "repeats without a text": '{"id":"a","text":"x","repeats":[{}]}',
    "stages null": '{"id":"a","text":"x","stages":null}',
    "missing a text": '{"id":"a","text":"x","missing":"x"}',
}
PATTERN = '{"id":"a","prompt":"?","key_fields":[{"name":"n","pattern":"("}]}'
CASES = {
    "no regular expression": PATTERN,
    "fields a number": '{"id":"a","prompt":"?","key_fields":5}',
    "not a number": '{"id":"a","prompt":"?","key_fields":{"n":NaN}}',
    "a picture that is a URL": '{"id":"a","prompt":"?","images":["data:image/png;base64,' + "A" * 5000 + '"]}',
}
MODELS = (200, b'{"data":[{"id":"m"}]}')
# Status and body of GET /v1/models, then of POST /v1/chat/completions.
SERVERS = {
    "a page": (MODELS, (200, b"<html>")),
    "nothing": (MODELS, (200, b"")),
    "a list": (MODELS, (200, b"[1]")),
    "no choice": (MODELS, (200, b'{"choices":[]}')),
    "no message": (MODELS, (200, b'{"choices":[{"message":null}]}')),
    "parts": (MODELS, (200, b'{"choices":[{"message":{"content":[{"type":"text"}]}}]}')),
    "half a pair": (MODELS, (200, b'{"choices":[{"message":{"content":"\\ud800"}}]}')),
    "models without a name": ((200, b'{"data":[{}]}'), (200, b"")),
    "models not UTF-8": ((200, b"\xff\xfe"), (200, b"")),
}


def run(module, *arguments):
    app = Typer()
    app.command()(module.command)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def refused(result, *codes):
    """The error object of --json; anything else on stdout, or another exit code, fails."""
    assert result.exit_code == 2, result.output
    said = json.loads(result.stdout, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert said["error"]["code"] in codes, said
    return said["error"]


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_a_line_that_is_no_answer(tmp_path, line):
    path = tmp_path / "answers.jsonl"
    path.write_text(line + "\n")
    refused(run(compare, path, path, "--json"), "run-invalid", "jsonl-invalid")


@pytest.mark.parametrize("line", CASES.values(), ids=CASES)
def test_a_line_that_is_no_case_is_refused_before_anybody_is_asked(tmp_path, line):
    path = tmp_path / "cases.jsonl"
    path.write_text(line + "\n")
    made = run(capture, "http://127.0.0.1:9", "--cases", path, "--out", tmp_path / "run", "--json")
    refused(made, "jsonl-invalid", "image-missing")


class Server(http.server.BaseHTTPRequestHandler):
    """Says what its class was given."""

    answers = (MODELS, MODELS)

    def log_message(self, *given):
        pass

    def say(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.say(*self.answers[0])

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.say(*self.answers[1])


@pytest.fixture
def served():
    """served(models, completion) is the URL of a server that says those."""
    started = []

    def start(*answers):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Server,), {"answers": answers}))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        started.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in started:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("answers", SERVERS.values(), ids=SERVERS)
def test_a_server_that_is_none_of_ours(served, answers):
    refused(run(ask, served(*answers), "?", "--json"), "server-unusable")


def test_a_refusal_of_the_models_keeps_its_status(served):
    error = refused(run(ask, served((401, b"no key"), MODELS), "?", "--json"), "server-refused")
    assert "401" in error["what"] and "no key" in error["why"]


def test_log_probabilities_that_are_not_finite_are_left_out(served, tmp_path):
    top = '{"token":"token_id:5","logprob":-1e999}'
    listed = f'{{"content":[{{"token":"token_id:5","logprob":-1,"top_logprobs":[{top}]}}]}}'
    body = f'{{"choices":[{{"message":{{"content":"x"}},"logprobs":{listed}}}]}}'
    cases = tmp_path / "cases.jsonl"
    cases.write_text('{"id":"a","prompt":"?"}\n')
    url = served(MODELS, (200, body.encode()))
    made = run(capture, url, "--cases", cases, "--out", tmp_path / "run", "--json")
    assert made.exit_code == 0, made.output
    recorded = json.loads((tmp_path / "run" / "answers.jsonl").read_text())
    assert recorded["logprobs"] is None and "logprobs" in recorded["missing"]


@pytest.mark.parametrize("address", ["http://[::1", "http://"])
def test_an_address_that_is_none(address):
    refused(run(ask, address, "?", "--json"), "target-unknown")


def test_a_directory_that_cannot_be_written(tmp_path):
    cases = tmp_path / "cases.jsonl"
    cases.write_text('{"id":"a","prompt":"?"}\n')
    refused(run(capture, "http://127.0.0.1:9", "--cases", cases, "--out", "/dev/null/x", "--json"), "file-unusable")


@pytest.fixture
def two(make_run, invoice):
    """Two runs with the same name in different places."""
    one, other = make_run("one/A", [invoice()]), make_run("two/A", [invoice(finish_reason="length")])
    return one, other


def test_a_report_of_two_runs_of_one_name_checks(two, tmp_path):
    out = tmp_path / "r.html"
    assert run(report_command, *two, "-o", out).exit_code == 0
    assert run(report_command, "--check", out).exit_code == 0


def test_a_report_whose_runs_are_gone(two, tmp_path):
    out = tmp_path / "r.html"
    run(report_command, *two, "-o", out)
    shutil.rmtree(two[0])
    refused(run(report_command, "--check", out, "--json"), "file-unreadable")


@pytest.mark.parametrize("suffix", [".html", ".md", ".zh.md"])
@pytest.mark.parametrize("added", ["<p>PASS</p>", " "])
def test_anything_added_to_a_report_is_seen(two, tmp_path, suffix, added):
    out = tmp_path / "r.html"
    run(report_command, *two, "-o", out)
    file = out.with_suffix(suffix)
    file.write_text(file.read_text() + added)
    assert run(report_command, "--check", out).exit_code == 1


def test_a_report_is_an_html_file(two, tmp_path):
    refused(run(report_command, *two, "-o", tmp_path / "r.md", "--json"), "report-name")


DAMAGED = [
    ("verify.json", "{}"),
    ("verify.json", '{"stages":[]}'),
    ("bisect.json", "{}"),
    ("manifest.json", '{"schema":1,"sha256":5}'),
    ("r.html", '<pre hidden id="ascend-vl-report">[]</pre>'),
    ("r.html", '<pre hidden id="ascend-vl-report">x</pre>'),
    ("r.html", '<pre hidden id="ascend-vl-report">{"runs":[]}</pre>'),
]


@pytest.mark.parametrize(("name", "content"), DAMAGED)
def test_damaged_records_are_said_to_be(tmp_path, name, content):
    folder = tmp_path / "damaged"
    folder.mkdir()
    (folder / "manifest.json").write_text('{"schema":1,"sha256":{}}')
    (folder / name).write_text(content)
    target = folder / name if name.endswith(".html") else folder
    refused(run(report_command, "--check", target, "--json"), "run-invalid", "file-unreadable")


def test_a_run_that_was_changed_passes_nothing(make_run, invoice):
    one, other = make_run("one", [invoice()]), make_run("two", [invoice()])
    assert run(compare, one, other).exit_code == 0
    answers = other / "answers.jsonl"
    answers.write_text(answers.read_text().replace('"finish_reason": "stop"', '"finish_reason": "length"'))
    assert run(compare, one, other).exit_code == 1


def test_a_base_that_is_no_run_is_refused_before_an_engine_starts(tmp_path):
    base = tmp_path / "base.jsonl"
    base.write_text("")
    refused(run(verify, tmp_path, "--base", base, "--out", tmp_path / "out", "--json"), "run-invalid")
