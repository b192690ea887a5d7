"""The support archive holds what helps and nothing that must stay."""

import json
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascend_vl.errors import AscendVLError
from ascend_vl.machine.redaction import redact
from ascend_vl.machine.support import TAIL, write_archive

SECRETS = [
    ("vllm serve m --api-key s3cretvalue --port 1", "s3cretvalue"),
    ("vllm serve m --api-key=s3cretvalue", "s3cretvalue"),
    ("vllm serve m --api-key one-key two-key --port 1", "two-key"),
    ("Authorization: Bearer abcdef123456", "abcdef123456"),
    ("VLLM_API_KEY=abcdef", "abcdef"),
    ('{"api_key": "abc def"}', "abc def"),
    ("token: hf_abcdefghijklmn", "hf_abcdefghijklmn"),
    ("using hf_abcdefghijklmn now", "hf_abcdefghijklmn"),
    ("sk-proj-abcdefghijkl", "abcdefghijkl"),
    ("http://alice:pa55@host/x", "pa55"),
    ("peer 192.168.3.14:8000", "192.168.3.14"),
    ("peer fe80:0:0:0:1:2:3:4", "fe80"),
    ("/home/alice/models/q", "alice"),
    ("/Users/alice/models/q", "alice"),
    ("data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAAB", "iVBORw0KGgo"),
]


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_secrets_are_taken_out(text: str, secret: str) -> None:
    assert secret not in redact(text, ())


def test_what_helps_stays() -> None:
    text = "error code is 507018 at 0.0.0.0:8000, max_num_batched_tokens=5 tokenizer=q /models/Qwen3-VL-8B vllm 0.18.0"
    assert redact(text, ()) == text


def test_own_names_are_hidden() -> None:
    assert redact("run by alice on box-7.local", ("alice", "box-7.local")) == "run by [name] on [name]"
    assert redact("malice stays", ("alice",)) == "malice stays"


@settings(max_examples=50, deadline=None)
@given(
    st.text(
        alphabet=st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="\"' ,;&}])-"),
        min_size=6,
        max_size=20,
    )
)
def test_any_key_is_taken_out(key: str) -> None:
    assert key not in redact(f"x VLLM_API_KEY={key} y", ()) or key in "[removed]"


def test_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = tmp_path / "ascend/plog"
    logs.mkdir(parents=True)
    (logs / "plog-1.log").write_bytes(b"old\n" + b"x" * TAIL + b"\nE 507018 Bearer abcdef123456\n")
    monkeypatch.setenv("ASCEND_PROCESS_LOG_PATH", str(tmp_path / "ascend"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("VLLM_API_KEY", "abcdef123456")
    monkeypatch.setenv("UNRELATED_THING", "private")
    extra = tmp_path / "mine.log"
    extra.write_text("password=abcdef123456\n", encoding="utf-8")
    out = tmp_path / "out.zip"
    names = write_archive(out, {"health": "degraded", "packages": {"vllm": "0.18.0"}}, [extra, tmp_path / "gone.log"])
    with zipfile.ZipFile(out) as archive:
        contents = {name: archive.read(name).decode() for name in archive.namelist()}
    assert sorted(contents) == sorted(names)
    assert json.loads(contents["status.json"])["health"] == "degraded"
    assert {"plog/0-plog-1.log", "logs/0-mine.log", "logs/1-gone.log", "environment.txt"} <= set(contents)
    everything = "\n".join(contents.values())
    assert "abcdef123456" not in everything
    assert "private" not in everything
    assert "507018" in contents["plog/0-plog-1.log"]
    assert "old" not in contents["plog/0-plog-1.log"]
    assert "VLLM_API_KEY=[removed]" in contents["environment.txt"]


def test_a_place_that_cannot_be_written() -> None:
    with pytest.raises(AscendVLError) as caught:
        write_archive(Path("/proc/none/out.zip"), {})
    assert caught.value.code == "file-unwritable"
