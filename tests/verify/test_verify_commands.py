"""The commands: exit codes, JSON alone on stdout, errors without tracebacks."""

import json
import subprocess
import sys

import pytest


def run(*arguments, **environment):
    import os

    command = [sys.executable, "-m", "ascend_vl", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "ASCEND_VL_LANG": "en", **environment}
    )


@pytest.fixture
def pair(make_run, invoice):
    """Two runs that differ in one digit."""
    return make_run("a", [invoice()]), make_run("b", [invoice(text="The total is 1042.50 due 2024-05-01.")])


def test_compare_passes_and_fails_by_exit_code_with_json_alone(pair):
    same = run("compare", pair[0], pair[0], "--json")
    assert (same.returncode, json.loads(same.stdout)["verdict"]) == (0, "pass")
    wrong = run("compare", *pair, "--json")
    assert (wrong.returncode, json.loads(wrong.stdout)["verdict"]) == (1, "fail")
    result = json.loads(wrong.stdout)
    assert result["schema"] == 1
    assert set(result) >= {"cases", "summary", "required", "verdict"}
    assert result["cases"][0].keys() >= {"id", "metrics"}


def test_compare_prints_the_default_set_and_the_reason(pair):
    shown = run("compare", *pair)
    assert shown.returncode == 1
    assert "token_match=0.9, key_fields=1, numbers_match=1" in shown.stdout
    assert "1042.5" in shown.stdout


def test_compare_speaks_chinese(pair):
    shown = run("compare", *pair, "--lang", "zh").stdout
    assert "结论: 未通过" in shown
    assert "有用例不满足" in shown


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("compare", "missing.jsonl", "missing.jsonl"), "file-unreadable"),
        (("compare", "{a}", "{a}", "--require", "speed=1"), "requirement-invalid"),
        (("compare", "{a}", "{a}", "--recipe", "none"), "recipe-unknown"),
        (("capture", "no-such-model", "--cases", "{cases}", "--out", "{out}"), "target-unknown"),
        (("capture", "http://127.0.0.1:9", "--cases", "{cases}", "--out", "{out}"), "server-unreachable"),
        (("capture", "http://127.0.0.1:9", "--cases", "{cases}", "--out", "{a}"), "out-not-empty"),
        (("capture", "http://127.0.0.1:9", "--cases", "{cases}", "--out", "{out}", "--dtype", "int8"), "dtype-unknown"),
        (("verify", "{a}", "--stages", "Z"), "stage-unknown"),
        (("verify", "no-such-model"), "target-unknown"),
        (("report", "{missing}", "-o", "{out}/r.html"), "file-unreadable"),
        (("report", "--check", "{missing}"), "file-unreadable"),
    ],
)
def test_a_users_mistake_is_three_lines_and_exit_two(pair, tmp_path, arguments, code):
    cases = tmp_path / "cases.jsonl"
    cases.write_text('{"id": "1", "prompt": "Hello"}\n')
    places = {"a": pair[0], "cases": cases, "out": tmp_path / "out", "missing": tmp_path / "missing"}
    words = [word.format(**places) for word in arguments]
    shown = run(*words)
    assert shown.returncode == 2
    assert f"[{code}]" in shown.stderr and "Traceback" not in shown.stderr
    error = json.loads(run(*words, "--json").stdout)["error"]
    assert error["code"] == code
    assert all(error[key] for key in ("what", "why", "do"))


def test_report_and_check(pair, tmp_path):
    out = tmp_path / "r.html"
    assert run("report", *pair, "-o", out).returncode == 0
    assert out.is_file() and out.with_suffix(".md").is_file()
    assert run("report", "--check", pair[0], pair[1], out).returncode == 0
    answers = pair[1] / "answers.jsonl"
    answers.write_text(answers.read_text().replace("1042.50", "1024.50"))
    for path in (pair[1], out):
        found = run("report", "--check", path, "--json")
        assert (found.returncode, json.loads(found.stdout)["verdict"]) == (1, "fail")


def test_help_and_compare_import_no_engine(pair):
    program = (
        "import sys; from ascend_vl.cli import capture, compare, report, verify; "
        "from ascend_vl.verify import alarms, comparison, remote, report as r, requirements, runs, stages, targets; "
        "print(sorted({'torch', 'vllm', 'transformers'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout.strip() == "[]"


def test_compare_names_answers_that_look_broken(make_run, invoice):
    broken = invoice(text="!!!!!!!!!!!!", token_ids=[0] * 12)
    shown = run("compare", make_run("a", [invoice()]), make_run("b", [broken]))
    assert "invoice: looks broken: a run of token id 0" in shown.stdout
