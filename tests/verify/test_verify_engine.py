"""The whole verification on a real engine, and bisection of planted faults. One engine a test."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from PIL import Image

from ascend_vl.verify import bisect, report, requirements, stages, verification

pytestmark = pytest.mark.engine
HERE = Path(__file__).parent
ORACLE = HERE.parent / "data" / "oracle" / "make_tiny_checkpoint.py"


def load(name):
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


planted = load("checkpoints")
plugin = load("planted_plugin")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """The oracle's checkpoint: published layout, random weights."""
    path = tmp_path_factory.mktemp("tiny") / "checkpoint"
    subprocess.run([sys.executable, ORACLE, "--out", path], check=True, capture_output=True)
    return path


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    """A turned photograph and a drawing: two sizes, one question each and one about both."""
    path = tmp_path_factory.mktemp("cases")
    photo = Image.radial_gradient("L").resize((160, 96)).convert("RGB")
    exif = photo.getexif()
    exif[0x112] = 6
    photo.save(path / "photo.jpg", exif=exif)
    Image.new("RGB", (96, 96), (200, 30, 30)).save(path / "red.png")
    lines = [
        {"id": "photo", "images": ["photo.jpg"], "prompt": "What?", "max_tokens": 6},
        {"id": "both", "images": ["photo.jpg", "red.png"], "prompt": "比较", "max_tokens": 6},
    ]
    file = path / "cases.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


class LookingStage:
    """A stage of the test's own: sees the server's metrics while it runs."""

    seen = ""

    @classmethod
    def run(cls, session):
        cls.seen = httpx.get(f"{session.engine().url}/metrics", trust_env=False).text
        session.check("looked", True)


@pytest.fixture(scope="module")
def verified(tiny, cases, tmp_path_factory):
    """Stages B and C in float32, and a stage that looks at the metrics: (record, directory)."""
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("looking_stage", loader=None))
    module.run = LookingStage.run
    sys.modules["looking_stage"] = module
    before = dict(stages.REGISTRY)
    stages.register(stages.Stage("X", "looking_stage", stages.Text("look", "看"), stages.Text("-", "-")))
    out = tmp_path_factory.mktemp("verify") / "out"
    session = stages.Session(tiny, cases, out, requirements.of_recipe("default"), dtype="float32")
    try:
        yield verification.verify(session, ["B", "C", "X"], "default"), out
    finally:
        stages.REGISTRY.clear()
        stages.REGISTRY.update(before)


def checks(record, key):
    stage = next(stage for stage in record["stages"] if stage["key"] == key)
    return {check["name"]: check for check in stage["checks"]}


def test_the_engine_is_the_reference_stage_by_stage(verified):
    record, _ = verified
    assert record["verdict"] == "pass", record["stages"]
    assert record["not_run"][0]["stage"] == "A"
    found = checks(record, "C")
    for name in ("image bytes", "grid", "pixel values", "prompt ids", "tower features", "first-token logits"):
        assert found[name]["status"] == "passed", found[name]
    # The photograph is turned upright on both sides: wider than high in the file, higher than wide in the grid.
    (_, high, wide), square = found["pictures together against alone"]["values"]["grids"]
    assert high > wide and square == [1, 16, 16]
    assert found["pictures together against alone"]["values"]["together"]["equal"]
    assert {"image answered", "repeated", "concurrent", "accuracy measured"} <= set(record["statuses"])
    assert "text answered" in record["statuses"] and "drew" not in record["statuses"]


def test_its_report_recomputes_and_a_changed_raw_file_is_noticed(verified):
    _, out = verified
    assert report.check(out) == []
    answers = out / "candidate" / "answers.jsonl"
    text = answers.read_text()
    try:
        first = json.loads(text.splitlines()[0])
        first["token_ids"][0] += 1
        answers.write_text(json.dumps(first) + "\n" + text.split("\n", 1)[1])
        assert any("answers.jsonl" in problem for problem in report.check(out))
        assert any("token_match" in problem for problem in report.check(out))
    finally:
        answers.write_text(text)


def test_the_alarm_counts_in_the_servers_own_metrics(verified):
    assert "ascend_vl_answers_checked_total" in LookingStage.seen
    assert 'ascend_vl_degenerate_answers_total{kind="zero_run"}' in LookingStage.seen


# fault, case, what bisect must find; faults of a checkpoint are in checkpoints.py, faults of an engine in
# planted_plugin.py
FAULTS = {
    "none": (None, "both", {"verdict": "PASS", "module": None}),
    "random_head": ("random_head", "both", {"verdict": "FAIL", "module": "logits", "weight": "lm_head.weight"}),
    "wrong_mrope_section": (
        "wrong_mrope_section",
        "both",
        {"verdict": "FAIL", "stage": "logits", "module": "language_model.layers.0", "operator": "mrope rotary"},
    ),
    "pixels": ("pixels_normalised_twice", "photo", {"verdict": "FAIL", "stage": "pixel_values", "module": None}),
    "exif": ("NO_EXIF", "photo", {"verdict": "FAIL", "stage": "grid", "module": None}),
    "overflow": (
        "overflowing_mlp",
        "photo",
        {"verdict": "FAIL", "module": "visual.blocks.1", "operator": "linear", "dtype": "float16", "why": "overflow"},
    ),
    "overflow on two ranks": (
        "overflowing_mlp",
        "photo",
        {
            **{"verdict": "FAIL", "module": "visual.blocks.1", "operator": "linear", "dtype": "float16"},
            **{"why": "overflow", "tensor_parallel": 2},
        },
    ),
    "only in decode steps": (
        "DECODE_ATTENTION",
        "photo",
        {
            **{"verdict": "FAIL", "stage": "decode", "position": 1, "module": "language_model.layers.1"},
            "operator": "text attention",
        },
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_bisect_names_the_planted_fault_at_its_level(tiny, cases, tmp_path, fault, monkeypatch):
    plant, case, expected = FAULTS[fault]
    candidate = planted.clone(tiny, tmp_path / "candidate")
    # An overflow is in the weights of both sides: only the narrower range of the engine's dtype is at fault.
    base = candidate if "why" in expected else tiny
    if hasattr(planted, plant or ""):
        getattr(planted, plant)(candidate)
    elif plant:
        plugin.install(tmp_path / "plugin", getattr(plugin, plant), monkeypatch)
    search = bisect.Search(
        base,
        candidate,
        bisect.choose(cases, case),
        cases,
        tmp_path / "out",
        expected.get("dtype", "float32"),
        tensor_parallel=expected.get("tensor_parallel", 1),
    )
    found = bisect.bisect(search)
    assert found["verdict"] == expected["verdict"], found
    for key in ("stage", "module", "position", "tensor_parallel"):
        assert found.get(key) == expected.get(key, found.get(key)), found
    assert found["captures"] <= found["capture_limit"]
    if "weight" in expected:
        assert found["weights"][0]["tensors"] == [expected["weight"]]
    if "operator" in expected:
        assert found["operator"].startswith(expected["operator"]), found
        assert found["why"].startswith(expected.get("why", "")), found
        assert found["shapes"]
        replay = subprocess.run(
            [sys.executable, "reproduce.py"], cwd=found["reproduction"], capture_output=True, text=True
        )
        assert replay.returncode == 0, replay.stderr
        assert json.loads(replay.stdout)["expected"] == found["why"]
