import json
from pathlib import Path

import pytest

from ascend_vl.drawing.deployment import Deployment, obstacle, of_options
from ascend_vl.errors import AscendVLError
from ascend_vl.machine import describe
from ascend_vl.models import names
from ascend_vl.plan import Wishes, resolve
from ascend_vl.plan.model import known_model

SP = json.dumps({"pass_config": {"enable_sp": True}})
CASES = [
    (["--data-parallel-size", "2"], "Data parallel"),
    (["-dp", "2"], "Data parallel"),
    (["--pipeline_parallel_size=2"], "Pipeline parallel"),
    (["--api-server-count", "4"], "one API server"),
    (["--distributed-executor-backend", "ray"], "ray"),
    (["--compilation-config", SP], "Sequence parallelism"),
    (["--additional-config", '{"enable_flashcomm1": true}'], "Flashcomm"),
]
FINE = [
    [],
    ["--data-parallel-size", "1", "--distributed-executor-backend=mp"],
    ["--nnodes", "2", "--node-rank", "0"],
    ["--compilation-config", "{", "--additional-config", "[]", "-pp", "x"],
]


@pytest.mark.parametrize(("options", "word"), CASES)
def test_options_that_leave_chat_only_are_told_by_the_plan(options: list[str], word: str) -> None:
    why = obstacle(of_options(options))
    assert why is not None and word in why.en and why.zh
    model = known_model("hidream-o1")
    assert model is not None
    plan = resolve(model, Wishes(extra=tuple(options)), describe(chip="910b3"))
    found = next(value for value in plan.values if value.name == "drawing")
    assert (found.value, word in found.reason.en, plan.drawing) == ("off", True, False)
    overrides = json.loads(plan.command[plan.command.index("--hf-overrides") + 1])
    assert overrides[names.DRAWING_KEY] is False
    with pytest.raises(AscendVLError, match="wish-impossible") as refused:
        resolve(model, Wishes(extra=tuple(options), drawing="on"), describe(chip="910b3"))
    assert word in refused.value.why.en


@pytest.mark.parametrize("options", FINE)
def test_other_options_are_no_obstacle(options: list[str]) -> None:
    assert obstacle(of_options(options)) is None


def test_the_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_ASCEND_ENABLE_FLASHCOMM1", "0")
    assert not of_options([]).flashcomm
    monkeypatch.setenv("VLLM_ASCEND_ENABLE_FLASHCOMM1", "1")
    assert of_options([]).flashcomm


def test_several_machines_draw_unless_ray_joins_them() -> None:
    model = known_model("hidream-o1")
    assert model is not None
    for version, drawing in (("0.18.0", True), ("0.11.0", False)):
        plan = resolve(model, Wishes(nodes=2), describe(chip="910b3", chips=8, vllm_ascend=version))
        assert plan.drawing is drawing


def test_the_default_is_one_engine() -> None:
    assert of_options([]) == Deployment()


def test_paths_are_no_options(tmp_path: Path) -> None:
    assert obstacle(of_options(["--served-model-name", str(tmp_path / "a=b")])) is None
