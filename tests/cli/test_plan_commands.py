"""doctor, plan and lint as a user runs them: exit codes, JSON alone on stdout, two languages, no traceback."""

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from ascend_vl.cli.app import main
from ascend_vl.language import speak

DATA = Path(__file__).parents[1] / "data"
DEMO = Path(__file__).parents[2] / "src/ascend_vl/demo/checkpoint"


class Run(Protocol):
    """Runs a command in this process: exit code, standard output, standard error."""

    def __call__(self, *arguments: str, stdin: bytes = b"") -> tuple[int, str, str]: ...


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    def call(*arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["ascend-vl", *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, out, err

    yield call
    speak(None)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["doctor", "--chip", "300i-duo"], 0),
        (["doctor", "--chip", "300i-duo", "--vllm-ascend", "0.11.0rc0"], 1),
        (["doctor", "--chip", "nothing"], 2),
        (["doctor", "--symptom", "error code is 507018"], 1),
        (["doctor", "--symptom", "all is well"], 2),
        (["doctor", "--explain", "507018"], 0),
        (["doctor", "--explain", "nothing"], 2),
        (["doctor", "--chip", "300i-duo", "--probe"], 2),
        (["doctor", "--server", "http://127.0.0.1:9"], 2),
        (["plan", "qwen3-vl-8b", "--chip", "300i-duo"], 0),
        (["plan", "qwen3-vl-32b", "--chip", "300i-duo", "--gpu-memory-utilization", "0.75", "-tp", "2"], 1),
        (["plan", "qwen3-vl-8b", "--chip", "300i-duo", "--dtype", "bfloat16"], 1),
        (["plan", "qwen3-vl-8b", "--chip", "300i-duo", "--dtype", "int3"], 2),
        (["plan", "/nowhere/at/all", "--chip", "300i-duo"], 2),
        (["lint", str(DATA / "lint/official-300i-duo.sh"), "--chip", "300i-duo"], 1),
        (["lint", str(DATA / "ports/hidream-o1-910b.txt")], 0),
        (["lint", "/nowhere/at/all"], 2),
    ],
)
@pytest.mark.parametrize("form", [[], ["--json"], ["--lang", "zh"]])
def test_exit_codes(run: Run, arguments: list[str], code: int, form: list[str]) -> None:
    returned, out, err = run(*arguments, *form)
    assert returned == code, err
    if form == ["--json"]:
        value = json.loads(out)
        assert value.get("schema") == 1 or set(value["error"]) == {"code", "what", "why", "do"}
    elif form:
        assert any("\u4e00" <= char <= "\u9fff" for char in out + err)


def test_lint_reads_the_standard_input(run: Run) -> None:
    code, out, _ = run("lint", "-", "--chip", "300i-duo", "--json", stdin=b"vllm serve m --dtype bfloat16\n")
    value = json.loads(out)
    assert code == 1
    assert "flag-dtype-bfloat16-310p" in [finding["rule"] for finding in value["findings"]]
    assert "--dtype float16" in value["repaired"]


def test_a_plan_that_does_not_fit_still_has_its_sum_in_json(run: Run) -> None:
    code, out, _ = run(
        "plan", "qwen3-vl-32b", "--chip", "300i-duo", "-tp", "2", "--gpu-memory-utilization", "0.75", "--json"
    )
    value = json.loads(out)
    assert code == 1
    assert value["error"]["code"] == "does-not-fit"
    assert value["fits"] is False
    assert value["memory"]["changes"]


@pytest.mark.parametrize("form", ["docker", "compose", "k8s", "systemd", "json", "command"])
def test_forms(run: Run, form: str) -> None:
    code, out, _ = run("plan", "qwen3-vl-8b", "--chip", "300i-duo", "--as", form)
    assert code == 0
    assert out.strip()


def test_plan_warns_of_what_lint_calls_an_error(run: Run) -> None:
    code, out, _ = run("plan", "qwen3-vl-8b", "--chip", "300i-duo", "--json", "--max-model-len", "100000")
    assert code == 0 and any("16384" in warning for warning in json.loads(out)["warnings"])
    _, out, _ = run("plan", "qwen3-vl-8b", "--chip", "300i-duo", "--json", "--max-model-length", "100", "--lang", "en")
    assert any("Did you mean --max-model-len?" in warning for warning in json.loads(out)["warnings"])
    _, out, _ = run("plan", "qwen3-vl-8b", "--chip", "300i-duo", "--json")
    assert json.loads(out)["warnings"] == []


def test_a_model_that_is_not_known_is_told_which_are(run: Run) -> None:
    code, out, _ = run("plan", "qwen3-vl-235b", "--chip", "a3", "--json")
    error = json.loads(out)["error"]
    assert (code, error["code"]) == (2, "model-not-found") and "qwen3-vl-8b" in error["do"]


def test_a_directory_without_a_model_is_none(run: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("x")
    code, out, _ = run("inspect", str(tmp_path), "--json")
    assert (code, json.loads(out)["error"]["code"]) == (2, "model-not-found")


def test_an_id_with_two_meanings_has_both_explained(run: Run) -> None:
    _, out, _ = run("doctor", "--explain", "does-not-fit", "--json", "--lang", "en")
    value = json.loads(out)
    assert value["kind"] == "error of ascend-vl" and any("KV cache" in line["text"] for line in value["lines"])
    assert not any(line["text"] == "{...}" for line in value["lines"])
    code, out, _ = run("doctor", "--explain", "unpad-borders", "--json")
    assert code == 0 and "_npu_flash_attention_unpad" in json.loads(out)["title"]


def test_options_of_vllm_are_passed_through(run: Run) -> None:
    _, out, _ = run("plan", "qwen3-vl-8b", "--chip", "300i-duo", "--json", "--", "--seed", "7")
    assert json.loads(out)["command"][-2:] == ["--seed", "7"]


def test_a_log_file_is_a_symptom(run: Run, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"INFO fine\n\xff\xfe broken bytes\nE error code is 507018\n")
    _, out, _ = run("doctor", "--symptom", str(log), "--chip", "300i-duo", "--json")
    value = json.loads(out)
    assert value["recognised"][0]["line"] == 3
    assert value["causes"][0]["adaptation"] == "embedding-merge"


@pytest.mark.parametrize(
    "arguments",
    [
        ["doctor"],
        ["doctor", "--explain", "507018"],
        ["doctor", "--symptom", "507018"],
        ["plan", "qwen3-vl-8b", "--chip", "300i-duo"],
        ["plan", "hidream-o1", "--chip", "910b3", "--as", "k8s"],
        ["lint", "-"],
        ["inspect", str(DEMO)],
        ["fetch", "a/b", "--offline"],
        ["pack", "--check", "/nowhere/at/all"],
    ],
)
def test_no_engine_is_loaded(arguments: list[str]) -> None:
    code = (
        "import sys\n"
        f"sys.argv = ['ascend-vl', *{arguments!r}]\n"
        "from ascend_vl.cli.app import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(sorted({'torch', 'vllm', 'transformers', 'numpy'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], input="", capture_output=True, text=True, timeout=120)
    assert done.stderr.splitlines()[-1] == "[]"
