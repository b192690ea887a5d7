"""Downloads from a server that breaks off, truncates, changes a byte, answers 429 and 503: both hubs, real clients."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hub_server import COMMIT, REPOSITORY, HubServer
from sparse_checkpoint import stored, tiny_config, write_checkpoint

from ascend_vl.checkpoint import inspect_checkpoint
from ascend_vl.checkpoint.fetching import NOTES, Fetch, Patience
from ascend_vl.checkpoint.hub_choice import open_repository
from ascend_vl.errors import AscendVLError

CONFIG = tiny_config()
SHARD = "model-00002-of-00002.safetensors"
HUBS = ["huggingface", "modelscope"]


@pytest.fixture
def source(tmp_path) -> Path:
    """What the hub holds: a sound checkpoint, and files that serving does not need."""
    root = write_checkpoint(tmp_path / "source", CONFIG, stored(CONFIG, head=True), 2)
    for shard in root.glob("*.safetensors"):
        raw = bytearray(shard.read_bytes())
        start = len(raw) // 2
        raw[start:] = os.urandom(len(raw) - start)
        shard.write_bytes(raw)
    for name in ("pytorch_model.bin", "consolidated.safetensors", "model.gguf", "example.png", "modeling.py"):
        (root / name).write_bytes(b"x" * 1000)
    (root / "original").mkdir()
    (root / "original" / "model.safetensors").write_bytes(b"x" * 1000)
    (root / "LICENSE").write_text("licence")
    return root


@pytest.fixture
def hub(source, monkeypatch):
    monkeypatch.delenv("VLLM_USE_MODELSCOPE", raising=False)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    with HubServer(source) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("MODELSCOPE_ENDPOINT", server.url)
        yield server


def fetch(name: str, out: Path, attempts: int = 3) -> list[str]:
    """Fetch; what was remarked on the way."""
    remarks: list[str] = []
    patience = Patience(attempts=attempts, first_wait=0.0)
    Fetch(open_repository(REPOSITORY, name), out, patience=patience, remark=lambda text: remarks.append(text.en)).run()
    return remarks


def transfers(hub: HubServer, name: str = SHARD) -> list[tuple[int, int]]:
    return [(first, status) for file, first, status in hub.log if file == name]


@pytest.mark.parametrize("name", HUBS)
def test_only_what_serving_needs_arrives_and_equals_the_source(name, hub, source, tmp_path):
    out = tmp_path / "out"
    assert fetch(name, out) == []
    arrived = {path.name for path in out.iterdir()} - {NOTES}
    assert arrived == {
        "LICENSE",
        "config.json",
        "model-00001-of-00002.safetensors",
        SHARD,
        "model.safetensors.index.json",
        "preprocessor_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert all((out / file).read_bytes() == (source / file).read_bytes() for file in arrived)
    assert inspect_checkpoint(out).verdict == "servable"


@pytest.mark.parametrize("name", HUBS)
def test_a_second_run_transfers_nothing(name, hub, tmp_path):
    fetch(name, tmp_path / "out")
    before = hub.sent
    fetch(name, tmp_path / "out")
    assert hub.sent == before


@pytest.mark.parametrize("name", HUBS)
def test_a_broken_connection_is_continued_where_it_broke(name, hub, source, tmp_path, monkeypatch):
    # What a client has not handed on when the connection breaks is lost: at most one of these.
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 2**16)
    hub.faults[SHARD] = [("break", 300_000), ("break", 200_000)]
    fetch(name, tmp_path / "out")
    assert (tmp_path / "out" / SHARD).read_bytes() == (source / SHARD).read_bytes()
    starts = [first for first, _ in transfers(hub)]
    assert len(starts) == 3
    assert 300_000 - 2**16 < starts[1] <= 300_000
    assert 400_000 - 2**17 < starts[2] <= 500_000


@pytest.mark.parametrize("name", HUBS)
def test_another_run_continues_a_partial_file(name, hub, source, tmp_path):
    """What a killed run left behind is not downloaded again."""
    out = tmp_path / "out"
    out.mkdir()
    (out / f"{SHARD}.partial").write_bytes((source / SHARD).read_bytes()[:60_000])
    fetch(name, out)
    assert transfers(hub) == [(60_000, 206)]
    assert (out / SHARD).read_bytes() == (source / SHARD).read_bytes()
    assert not (out / f"{SHARD}.partial").exists()


@pytest.mark.parametrize("name", HUBS)
def test_a_partial_file_of_another_content_is_not_kept(name, hub, source, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / f"{SHARD}.partial").write_bytes(b"\1" * 60_000)
    remarks = fetch(name, out)
    assert "damaged" in remarks[0]
    assert (out / SHARD).read_bytes() == (source / SHARD).read_bytes()


@pytest.mark.parametrize("name", HUBS)
def test_a_server_that_ignores_ranges(name, hub, source, tmp_path):
    hub.ranges = False
    out = tmp_path / "out"
    out.mkdir()
    (out / f"{SHARD}.partial").write_bytes((source / SHARD).read_bytes()[:60_000])
    fetch(name, out)
    assert (out / SHARD).read_bytes() == (source / SHARD).read_bytes()


@pytest.mark.parametrize("name", HUBS)
def test_a_short_answer_is_completed(name, hub, source, tmp_path):
    hub.faults[SHARD] = [("short", 40_000)]
    fetch(name, tmp_path / "out")
    assert (tmp_path / "out" / SHARD).read_bytes() == (source / SHARD).read_bytes()


@pytest.mark.parametrize("name", HUBS)
def test_a_changed_byte_is_noticed_and_downloaded_again(name, hub, source, tmp_path):
    hub.faults[SHARD] = [("flip", 70_000)]
    remarks = fetch(name, tmp_path / "out")
    assert "damaged" in remarks[0]
    assert (tmp_path / "out" / SHARD).read_bytes() == (source / SHARD).read_bytes()


@pytest.mark.parametrize("name", HUBS)
def test_a_changed_byte_in_a_small_file(name, hub, tmp_path):
    """Hugging Face lists no SHA-256 for it; git's own hash is used."""
    hub.faults["config.json"] = [("flip", 10)]
    assert "config.json arrived damaged" in fetch(name, tmp_path / "out")[0]


@pytest.mark.parametrize("name", HUBS)
def test_a_byte_changed_every_time_ends_in_an_error(name, hub, tmp_path):
    hub.faults[SHARD] = [("flip", 70_000)] * 2
    with pytest.raises(AscendVLError) as caught:
        fetch(name, tmp_path / "out")
    assert caught.value.code == "fetch-checksum"
    assert SHARD in caught.value.what.en
    assert not (tmp_path / "out" / SHARD).exists()


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("name", HUBS)
def test_a_busy_server_is_tried_again(name, status, hub, source, tmp_path):
    hub.faults[SHARD] = [status, status]
    fetch(name, tmp_path / "out")
    assert (tmp_path / "out" / SHARD).read_bytes() == (source / SHARD).read_bytes()


@pytest.mark.parametrize("name", HUBS)
def test_a_server_that_stays_busy(name, hub, tmp_path):
    hub.faults[SHARD] = [503] * 20
    with pytest.raises(AscendVLError) as caught:
        fetch(name, tmp_path / "out")
    assert caught.value.code == "repository-busy"
    assert caught.value.exit_code == 2
    assert len(transfers(hub)) >= 3


@pytest.mark.parametrize("name", HUBS)
def test_a_server_that_never_gets_further(name, hub, tmp_path):
    hub.faults[SHARD] = [("short", 1000)] + [("short", 0)] * 20
    with pytest.raises(AscendVLError) as caught:
        fetch(name, tmp_path / "out")
    assert caught.value.code in ("fetch-truncated", "repository-unreachable")
    assert (tmp_path / "out" / f"{SHARD}.partial").stat().st_size == 1000


@pytest.mark.parametrize("name", HUBS)
@pytest.mark.parametrize(
    ("status", "code"), [(404, "repository-not-found"), (403, "repository-refused"), (401, "repository-refused")]
)
def test_a_repository_that_is_not_to_be_had(name, status, code, hub):
    hub.listing_faults = [status] * 10
    with pytest.raises(AscendVLError) as caught:
        open_repository(REPOSITORY, name)
    assert caught.value.code == code


@pytest.mark.parametrize("name", HUBS)
def test_nobody_listens(name, tmp_path, unused_port):
    address = f"http://127.0.0.1:{unused_port}"
    environment = {"HF_ENDPOINT": address, "MODELSCOPE_ENDPOINT": address, "MODELSCOPE_API_MAX_RETRIES": "0"}
    done = run("inspect", REPOSITORY, "--from", name, "--json", cwd=tmp_path, **environment)
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["code"] == "repository-unreachable"


@pytest.fixture
def unused_port() -> int:
    import socket

    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


@pytest.mark.parametrize("name", HUBS)
def test_a_repository_is_inspected_without_its_weights(name, hub, source):
    checkpoint = inspect_checkpoint(REPOSITORY, source=name)
    local = inspect_checkpoint(source)
    assert checkpoint.family == "hidream-o1"
    assert checkpoint.parameters == local.parameters
    assert checkpoint.missing_tensors == ()
    assert checkpoint.path.startswith(f"{name}:{REPOSITORY}@")
    weights = sum((source / file).stat().st_size for file in (SHARD, "model-00001-of-00002.safetensors"))
    assert hub.sent < weights / 2


def test_a_server_without_ranges_is_inspected_too(hub):
    hub.ranges = False
    assert inspect_checkpoint(REPOSITORY, source="huggingface").parameters > 0


def test_too_little_room(hub, tmp_path, monkeypatch):
    import shutil

    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=2**30 + 1000))
    with pytest.raises(AscendVLError) as caught:
        fetch("huggingface", tmp_path / "out")
    assert caught.value.code == "fetch-no-space"
    assert not (tmp_path / "out" / SHARD).exists()


def test_a_repository_without_safetensors(hub, source, tmp_path):
    for path in [*source.glob("*.safetensors"), source / "model.safetensors.index.json"]:
        path.unlink()
    with pytest.raises(AscendVLError) as caught:
        fetch("huggingface", tmp_path / "out")
    assert caught.value.code == "fetch-no-weights"


def test_the_offline_variable_forbids_a_repository(monkeypatch, hub):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(AscendVLError) as caught:
        inspect_checkpoint(REPOSITORY)
    assert caught.value.code == "model-not-found"
    assert hub.log == []


# The command


def run(*args: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess:
    base = {key: value for key, value in os.environ.items() if key not in ("VLLM_USE_MODELSCOPE", "HF_HUB_OFFLINE")}
    return subprocess.run(
        [sys.executable, "-m", "ascend_vl", *args], cwd=cwd, env=base | environment, capture_output=True, text=True
    )


def addresses(hub: HubServer) -> dict[str, str]:
    return {"HF_ENDPOINT": hub.url, "MODELSCOPE_ENDPOINT": hub.url}


@pytest.mark.parametrize("name", HUBS)
def test_the_command_ends_with_an_inspection(name, hub, tmp_path):
    done = run("fetch", REPOSITORY, "--from", name, "--json", cwd=tmp_path, **addresses(hub))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["verdict"] == "servable"
    assert (tmp_path / "name" / SHARD).is_file()


def test_the_command_refuses_before_it_downloads(hub, source, tmp_path):
    (source / SHARD).unlink()
    done = run("fetch", REPOSITORY, "--json", cwd=tmp_path, **addresses(hub))
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"]["code"] == "checkpoint-defective"
    assert not (tmp_path / "name").exists()
    anyway = run("fetch", REPOSITORY, "--anyway", cwd=tmp_path, **addresses(hub))
    assert anyway.returncode == 1
    assert "shard-missing" in anyway.stdout
    assert "Traceback" not in anyway.stderr


def test_the_command_offline(hub, source, tmp_path):
    first = run("fetch", REPOSITORY, "--offline", cwd=tmp_path, **addresses(hub))
    assert first.returncode == 2
    assert "fetch-offline" in first.stderr
    run("fetch", REPOSITORY, cwd=tmp_path, **addresses(hub))
    hub.log.clear()
    again = run("fetch", REPOSITORY, "--offline", cwd=tmp_path, **addresses(hub))
    assert again.returncode == 0
    assert hub.log == []


def test_an_interrupt_ends_quietly_and_keeps_what_arrived(hub, tmp_path):
    hub.faults[SHARD] = [("hang", 300_000)]
    command = [sys.executable, "-m", "ascend_vl", "fetch", REPOSITORY, "--from", "modelscope"]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=os.environ | addresses(hub), stderr=subprocess.PIPE, text=True
    )
    partial = tmp_path / "name" / f"{SHARD}.partial"
    try:
        for _ in range(600):
            if partial.is_file() and partial.stat().st_size >= 200_000:
                break
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, remarks = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Traceback" not in remarks
    assert partial.stat().st_size >= 200_000


def test_the_hub_cache_serves_offline(source, tmp_path):
    snapshot = tmp_path / "cache" / "models--owner--name" / "snapshots" / COMMIT
    snapshot.parent.mkdir(parents=True)
    source.rename(snapshot)
    for extra in ("consolidated.safetensors",):
        (snapshot / extra).unlink()
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text(COMMIT)
    environment = {"HF_HUB_CACHE": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"}
    for command in (("fetch", REPOSITORY), ("inspect", REPOSITORY)):
        done = run(*command, "--lang", "en", cwd=tmp_path, **environment)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "hidream-o1" in done.stdout


def test_the_command_names_an_unknown_hub(tmp_path):
    done = run("fetch", REPOSITORY, "--from", "elsewhere", "--json", cwd=tmp_path)
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["code"] == "usage"


def test_inspect_exits_by_its_verdict(source, tmp_path):
    (source / "consolidated.safetensors").unlink()
    assert run("inspect", str(source), cwd=tmp_path).returncode == 0
    (source / SHARD).unlink()
    bad = run("inspect", str(source), "--lang", "zh", cwd=tmp_path)
    assert bad.returncode == 1
    assert "不能部署" in bad.stdout
    gone = run("inspect", str(tmp_path / "nowhere"), "--json", cwd=tmp_path)
    assert gone.returncode == 2
    assert set(json.loads(gone.stdout)["error"]) == {"code", "what", "why", "do"}
