"""Faults of a checkpoint that `verify` must name before any engine is started."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ORACLE = Path(__file__).parents[1] / "data" / "oracle" / "make_tiny_checkpoint.py"


def load(name):
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


planted = load("checkpoints")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """The oracle's checkpoint: published layout, random weights."""
    path = tmp_path_factory.mktemp("tiny") / "checkpoint"
    subprocess.run([sys.executable, ORACLE, "--out", path], check=True, capture_output=True)
    return path


def verify(model, out, *more):
    command = [sys.executable, "-m", "ascend_vl", "verify", model, "--out", out, "--json", *more]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, json.loads(done.stdout)


def test_a_missing_tensor_is_named_and_nothing_is_started(tiny, tmp_path):
    model = planted.clone(tiny, tmp_path / "model")
    name = "model.language_model.layers.1.self_attn.k_proj.weight"
    planted.change_tensor(model, name, lambda tensor: None)
    code, record = verify(model, tmp_path / "out", "--stages", "B,C")
    assert (code, record["verdict"]) == (1, "fail")
    stages = {stage["key"]: stage for stage in record["stages"]}
    assert stages["B"]["status"] == "failed"
    assert name in stages["B"]["checks"][-1]["detail"]
    assert stages["C"]["why_not"] == "stage B failed"
    assert record["statuses"] == []


def test_a_truncated_shard_is_named(tiny, tmp_path):
    model = planted.clone(tiny, tmp_path / "model")
    shard = model / "model-00002-of-00003.safetensors"
    data = shard.read_bytes()
    shard.unlink()
    shard.write_bytes(data[:-1000])
    code, record = verify(model, tmp_path / "out", "--stages", "B")
    assert code == 1
    failed = next(stage for stage in record["stages"] if stage["status"] == "failed")
    assert shard.name in failed["checks"][-1]["detail"]
    assert (tmp_path / "out" / "report.html").is_file()
    assert (
        "shard" in (tmp_path / "out" / "report.md").read_text()
        or shard.name in (tmp_path / "out" / "report.md").read_text()
    )
