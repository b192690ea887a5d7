"""What a plan chooses, and what it refuses."""

import dataclasses
import json
from pathlib import Path

import pytest

from ascend_vl import machine
from ascend_vl.adaptations import Finding
from ascend_vl.checkpoint import inspect_checkpoint
from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text
from ascend_vl.machine import describe
from ascend_vl.models import names
from ascend_vl.plan import Plan, Wishes, resolve
from ascend_vl.plan.model import from_checkpoint, known_model, main_dtype
from ascend_vl.plan.outputs import plan_json

DUO = describe(chip="300i-duo")


def plan(name: str = "qwen3-vl-8b", wishes: Wishes | None = None, on: machine.Machine = DUO) -> Plan:
    model = known_model(name)
    assert model is not None
    return resolve(model, wishes or Wishes(), on)


def flag(found: Plan, name: str) -> str | None:
    return found.command[found.command.index(name) + 1] if name in found.command else None


def test_310p() -> None:
    found = plan()
    assert found.command[:3] == ["vllm", "serve", "Qwen/Qwen3-VL-8B-Instruct"]
    assert flag(found, "--dtype") == "float16"
    assert flag(found, "--max-model-len") == "16384"
    assert "--enforce-eager" in found.command
    assert "--no-enable-prefix-caching" not in found.command
    assert flag(found, "--worker-extension-cls") == names.WORKER_EXTENSION
    assert json.loads(flag(found, "--hf-overrides") or "") == {"architectures": [names.QWEN3_VL]}
    assert found.environment["VLLM_MEDIA_CONNECTOR"] == names.MEDIA_CONNECTOR
    assert "embedding-merge" in found.adaptations


def test_a2() -> None:
    found = plan(on=describe(chip="910b3"))
    assert flag(found, "--dtype") == "bfloat16"
    assert flag(found, "--max-model-len") == "32768"
    assert flag(found, "--mm-processor-cache-gb") == "0"
    assert "--enforce-eager" not in found.command
    assert "--no-enable-prefix-caching" not in found.command


def test_011_is_eager_without_nz_and_without_a_media_connector() -> None:
    for chip in ("300i-duo", "910b3"):
        found = plan(on=describe(chip=chip, vllm_ascend="0.11.0"))
        assert "--enforce-eager" in found.command
        assert found.environment == {"VLLM_ASCEND_ENABLE_NZ": "0"}
        assert ("--no-enable-prefix-caching" in found.command) == (chip == "300i-duo")
    assert flag(plan(on=describe(chip="300i-duo", vllm_ascend="0.11.0")), "--gpu-memory-utilization") == "0.75"


def test_hidream_draws_by_default() -> None:
    found = plan("hidream-o1", on=describe(chip="910b3"))
    assert found.drawing
    overrides = json.loads(flag(found, "--hf-overrides") or "")
    assert overrides == {"architectures": [names.HIDREAM_O1], names.DRAWING_KEY: True}
    off = plan("hidream-o1", Wishes(drawing="off"), describe(chip="910b3"))
    assert json.loads(flag(off, "--hf-overrides") or "")[names.DRAWING_KEY] is False
    assert any("text answers" in warning.en for warning in found.warnings)


def test_every_value_says_where_it_comes_from() -> None:
    found = plan(wishes=Wishes(max_model_len=4096, port=9000, served_model_name="q"))
    sources = {value.name: value.source for value in found.values}
    assert sources["max_model_len"] == sources["port"] == sources["served_model_name"] == "user"
    assert sources["dtype"] == "rule"
    assert {value.source for value in found.values} == {"rule", "default", "user"}
    from ascend_vl.rules.explain import explain

    for value in found.values:
        assert value.reason.en and value.reason.zh
        if value.source == "rule":
            assert value.rule_id and explain(value.rule_id), value


def test_wishes_win() -> None:
    wishes = Wishes(
        dtype="float32",
        tensor_parallel_size=2,
        gpu_memory_utilization=0.8,
        max_num_seqs=3,
        enforce_eager=False,
        host="::",
    )
    found = plan("qwen3-vl-2b", wishes)
    assert flag(found, "--dtype") == "float32"
    assert flag(found, "--tensor-parallel-size") == "2"
    assert flag(found, "--gpu-memory-utilization") == "0.8"
    assert flag(found, "--max-num-seqs") == "3"
    assert "--enforce-eager" not in found.command
    assert flag(found, "--host") == "::"


def test_extra_options_go_to_vllm_last() -> None:
    found = plan(wishes=Wishes(extra=("--seed", "7")))
    assert found.command[-2:] == ["--seed", "7"]


def test_the_key_is_never_printed() -> None:
    found = plan(wishes=Wishes(api_key="s3cret"))
    assert found.secrets == {"VLLM_API_KEY": "s3cret"}
    assert "s3cret" not in repr(found)
    assert "s3cret" not in json.dumps(plan_json(found))
    assert "s3cret" not in repr(Wishes(api_key="s3cret"))
    assert all("s3cret" not in word for word in found.command)


@pytest.mark.parametrize(
    "wishes",
    [
        Wishes(dtype="bfloat16"),
        Wishes(tensor_parallel_size=3),
        Wishes(tensor_parallel_size=4),
        Wishes(tensor_parallel_size=0),
        Wishes(max_model_len=10**7),
        Wishes(gpu_memory_utilization=1.5),
        Wishes(drawing="on"),
        Wishes(nodes=2),
        Wishes(nodes=0),
    ],
)
def test_impossible_wishes(wishes: Wishes) -> None:
    with pytest.raises(AscendVLError) as caught:
        plan(wishes=wishes)
    assert (caught.value.code, caught.value.exit_code) == ("wish-impossible", 1)


def test_releases_that_cannot_serve() -> None:
    for release in ("0.12.0rc1", "0.14.0rc1", "0.21.0rc1"):
        with pytest.raises(AscendVLError) as caught:
            plan(on=describe(chip="300i-duo", vllm_ascend=release))
        assert caught.value.code == "version-cannot-serve"
    # Vision heads of 64 need no padding.
    assert plan("qwen3-vl-4b", on=describe(chip="300i-duo", vllm_ascend="0.14.0rc1")).warnings


def test_an_unknown_release_is_served_unadapted_with_a_warning() -> None:
    found = plan(on=describe(chip="300i-duo", vllm_ascend="0.99.0"))
    assert found.adaptations == []
    assert any("0.99.0" in warning.en for warning in found.warnings)


def test_a_chip_nobody_serves_on() -> None:
    on = dataclasses.replace(DUO, chips=(dataclasses.replace(DUO.chips[0], kind="none", name="310B4"),))
    with pytest.raises(AscendVLError) as caught:
        plan(on=on)
    assert caught.value.code == "chip-unsupported"


def test_switched_off_nothing_of_ours_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASCEND_VL", "off")
    found = plan()
    assert "--hf-overrides" not in found.command
    assert found.environment == {}
    assert found.adaptations == []


def test_what_probes_found_here_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    from ascend_vl import probes

    fine = Finding(False, Text("it works here", "本机可用"))
    monkeypatch.setattr(probes, "cached", lambda facts, model=None, shapes=None: {"index-put": fine})
    here = dataclasses.replace(DUO, described=False)
    assert "embedding-merge" not in plan(on=here).adaptations
    assert "embedding-merge" in plan(on=DUO).adaptations


def test_a_chip_that_computes_bfloat16_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from ascend_vl import probes

    fine = Finding(False, Text("it works here", "本机可用"))
    monkeypatch.setattr(probes, "cached", lambda facts, model=None, shapes=None: {"bfloat16": fine})
    found = plan(on=dataclasses.replace(DUO, described=False))
    assert flag(found, "--dtype") == "bfloat16"


def test_a_list_of_plugins_is_extended_only_when_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    here = dataclasses.replace(DUO, described=False)
    monkeypatch.delenv("VLLM_PLUGINS", raising=False)
    assert "VLLM_PLUGINS" not in plan(on=here).environment
    monkeypatch.setenv("VLLM_PLUGINS", "other")
    assert plan(on=here).environment["VLLM_PLUGINS"] == "other,ascend,ascend_vl"
    assert "VLLM_PLUGINS" not in plan().environment


def test_the_oracles_checkpoint_on_a_cpu(tmp_path: Path) -> None:
    import sys

    sys.path.insert(0, str(Path(__file__).parents[1] / "data/oracle"))
    config = json.loads((Path(__file__).parents[1] / "data/oracle/files/config.json").read_text(encoding="utf-8"))
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    model = from_checkpoint(inspect_checkpoint(tmp_path))
    found = resolve(model, Wishes(), describe(chip="cpu", memory=8))
    assert found.engine == "vllm-cpu"
    assert flag(found, "--dtype") == "float32"
    assert "--enforce-eager" in found.command


def test_quantised_checkpoints() -> None:
    model = known_model("qwen3-vl-8b")
    assert model is not None
    half = model.file_bytes // 2
    w8a8 = dataclasses.replace(model, quantised="ModelSlim W8A8 (version 1.0)", file_bytes=half)
    found = resolve(w8a8, Wishes(), DUO)
    assert flag(found, "--quantization") == "ascend"
    assert found.memory.weights == pytest.approx(half, rel=0.01)
    other = resolve(dataclasses.replace(model, quantised="gptq, 4 bits"), Wishes(), DUO)
    assert "--quantization" not in other.command
    assert any("gptq" in warning.en for warning in other.warnings)


def test_several_machines() -> None:
    found = plan("qwen3-vl-32b", Wishes(nodes=2, master_addr="10.0.0.1"), describe(chip="a3", chips=2))
    assert found.tensor_parallel_size == 4
    assert flag(found, "--nnodes") == "2"
    assert flag(found, "--master-addr") == "10.0.0.1"
    old = plan("qwen3-vl-32b", Wishes(nodes=2), describe(chip="a3", chips=2, vllm_ascend="0.11.0"))
    assert flag(old, "--distributed-executor-backend") == "ray"
    assert "--nnodes" not in old.command


def test_main_dtype() -> None:
    assert main_dtype({"BF16": 100, "F32": 3}) == "bfloat16"
    assert main_dtype({"F32": 100, "I8": 1000}) == "float32"
    assert main_dtype({}) == "bfloat16"
    assert main_dtype(None) == "bfloat16"
