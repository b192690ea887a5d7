"""What is kept and by what, and children that answer, die, hang or never start."""

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ascend_vl import probes
from ascend_vl.adaptations.record import Finding, MachineFacts
from ascend_vl.language import Text
from ascend_vl.probes import cache, child, runner, shapes
from ascend_vl.probes.device import Occupied
from ascend_vl.probes.registry import PROBES
from ascend_vl.serve import launch

FACTS = MachineFacts("310P3", "9.1.0", "25.5.2", "2.10.0.post4", "0.23.0.post1", "0.23.0")
SHAPES = shapes.Shapes()
PROBE = PROBES["index-put"]
FOUND = Finding(True, Text("fault", "故障"), {"code": 507018})


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ASCEND_VL_CACHE", str(tmp_path))
    return tmp_path / "probes"


def test_kept_and_read_back():
    assert cache.load(PROBE, FACTS, SHAPES) is None
    cache.store(PROBE, FACTS, SHAPES, FOUND)
    assert cache.load(PROBE, FACTS, SHAPES) == FOUND
    assert probes.cached(FACTS, shapes=SHAPES) == {"index-put": FOUND}


@pytest.mark.parametrize("name", cache.FACTS)
def test_every_fact_belongs_to_the_key(name):
    cache.store(PROBE, FACTS, SHAPES, FOUND)
    assert cache.load(PROBE, replace(FACTS, **{name: "other"}), SHAPES) is None


def test_shapes_settings_and_source_belong_to_the_key(monkeypatch):
    cache.store(PROBE, FACTS, SHAPES, FOUND)
    assert cache.load(PROBE, FACTS, replace(SHAPES, head_size=64)) is None
    assert cache.load(PROBES["copy-race"], FACTS, SHAPES) is None
    monkeypatch.setenv("ASCEND_LAUNCH_BLOCKING", "1")
    assert cache.load(PROBE, FACTS, SHAPES) is None
    monkeypatch.delenv("ASCEND_LAUNCH_BLOCKING")
    assert cache.load(PROBE, FACTS, SHAPES) == FOUND
    monkeypatch.setattr(cache, "source_hash", lambda probe: "changed")
    assert cache.load(PROBE, FACTS, SHAPES) is None


def test_a_worker_finds_what_was_probed_before_its_server_started(monkeypatch):
    """What we, vllm-ascend and the emulator set on the way from one process to the other is no part of the key."""
    cache.store(PROBE, FACTS, SHAPES, FOUND)
    monkeypatch.setenv(launch.PARENT, "1")
    monkeypatch.setenv("ASCEND_VL_CAPTURE", "1")
    monkeypatch.setenv("PYTORCH_NPU_ALLOC_CONF", "expandable_segments:True")
    monkeypatch.setenv("NPU_EMULATOR_SHARED", "/elsewhere")
    assert cache.load(PROBE, FACTS, SHAPES) == FOUND
    monkeypatch.setenv("NPU_EMULATOR", '{"faults": ["index-put"]}')
    assert cache.load(PROBE, FACTS, SHAPES) is None


def test_no_verdict_is_not_kept(folder):
    cache.store(PROBE, FACTS, SHAPES, Finding(None, Text("busy", "忙"), {}))
    assert not folder.exists()


def test_a_damaged_file_is_as_good_as_none(folder):
    cache.store(PROBE, FACTS, SHAPES, FOUND)
    next(folder.iterdir()).write_text("{")
    assert cache.load(PROBE, FACTS, SHAPES) is None


def test_what_another_release_kept_is_ignored_and_removed(folder, monkeypatch):
    cache.store(PROBE, FACTS, SHAPES, FOUND)
    monkeypatch.setattr(cache, "__version__", "99.0")
    assert cache.load(PROBE, FACTS, SHAPES) is None
    assert list(folder.iterdir()) == []


def test_keeping_something_clears_what_other_releases_kept(folder, monkeypatch):
    cache.store(PROBE, FACTS, replace(SHAPES, head_size=64), FOUND)
    (old,) = folder.iterdir()
    without_a_stamp = folder / "copy-race-0.json"
    without_a_stamp.write_text(json.dumps({"key": {}, "finding": cache.to_json(FOUND)}))
    monkeypatch.setattr(cache, "__version__", "99.0")
    cache.store(PROBE, FACTS, SHAPES, FOUND)
    assert not old.exists() and not without_a_stamp.exists()
    assert cache.load(PROBE, FACTS, SHAPES) == FOUND


def test_shapes_of_a_config_and_of_a_model_agree():
    config = json.loads((Path(__file__).parents[1] / "data/oracle/files/config.json").read_text())
    made = shapes.of_config(config, "float16", tensor_parallel=2)
    assert (made.vision_heads, made.head_size, made.hidden, made.merged) == (1, 72, 64, 192)
    assert shapes.from_json(json.loads(json.dumps(made.to_json()))) == made


def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, body: str) -> None:
    """Have the runner start `body` instead of a probe's child."""
    file = tmp_path / "child.py"
    file.write_text(f"import json, os, sys, time\nrequest = json.load(sys.stdin)\nMARK = {child.MARK!r}\n{body}\n")
    monkeypatch.setattr(runner, "COMMAND", (sys.executable, str(file)))


def test_a_child_answers_among_the_noise_of_frameworks(monkeypatch, tmp_path):
    said = json.dumps({"finding": cache.to_json(FOUND)})
    script(monkeypatch, tmp_path, f"print('INFO loading', end=''); print('\\n' + MARK + {said!r}); print('bye')")
    assert runner.ask("index-put", SHAPES) == FOUND


def test_a_child_that_dies_at_its_question_is_a_fault_and_keeps_what_it_knew(monkeypatch, tmp_path):
    note = json.dumps({"note": {"method": "gather", "question": "mask on npu"}})
    script(monkeypatch, tmp_path, f"print(MARK + {note!r}, flush=True); os.abort()")
    finding = runner.ask("index-put", SHAPES)
    assert finding.fault is True
    assert finding.numbers["method"] == "gather"


def test_a_child_that_dies_before_is_no_verdict(monkeypatch, tmp_path):
    script(monkeypatch, tmp_path, "sys.exit('no such device')")
    finding = runner.ask("index-put", SHAPES)
    assert finding.fault is None
    assert "no such device" in finding.numbers["stderr"]


def test_a_child_that_hangs_is_ended_with_what_it_started(monkeypatch, tmp_path):
    body = """
import subprocess
started = subprocess.Popen(["sleep", "600"])
with open(sys.argv[0] + ".pid", "w") as file:
    file.write(str(started.pid))
time.sleep(600)
"""
    script(monkeypatch, tmp_path, body)
    finding = runner.ask("index-put", SHAPES, timeout=5)
    assert finding.fault is None
    assert "5 s" in finding.reason.en
    grandchild = int((tmp_path / "child.py.pid").read_text())
    deadline = time.monotonic() + 20
    while alive(grandchild) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(grandchild)


def alive(process: int) -> bool:
    """Whether it runs; the kernel takes a moment to end what was killed."""
    try:
        return Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def test_run_asks_only_what_is_not_known_and_what_decides_something(monkeypatch):
    asked = []
    monkeypatch.setattr(runner, "ask", lambda name, shapes, **options: asked.append(name) or FOUND)
    cache.store(PROBE, FACTS, SHAPES, Finding(False, Text("fine", "正常"), {}))
    told = []
    found = runner.run(FACTS, SHAPES, told=lambda name, finding: told.append(name))
    assert found["index-put"].fault is False
    assert "index-put" not in asked
    rotary, vision = {"rotary-dtype", "rotary-values"}, {"vision-precision", "vision-borders"}
    assert set(asked) == {"bfloat16", "copy-race"} | rotary | vision
    assert told == list(found)
    assert runner.needed(MachineFacts()) == []
    assert runner.needed(replace(FACTS, vllm_ascend="0.31.0")) == []


@pytest.mark.parametrize(
    ("error", "fault", "code"),
    [
        (RuntimeError("call failed, error code is 507018"), True, 507018),
        (RuntimeError("SelfAttentionOperation setup failed!"), True, None),
        (Occupied("3.0 GiB of chip 0 are in use"), None, None),
        (ImportError("No module named 'torch_npu'"), None, None),
    ],
)
def test_a_device_error_is_a_fault_and_others_are_no_verdict(error, fault, code):
    finding = child.failure(error, {"width": 64})
    assert finding.fault is fault
    assert finding.numbers.get("code") == code
    assert finding.numbers["width"] == 64
