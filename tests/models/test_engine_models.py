"""What our classes compute in a real vLLM engine, and that nobody else's models change."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ascend_vl.models import names

HERE = Path(__file__).parent
HEAD = ("model.x_embedder.", "model.t_embedder1.", "model.final_layer2.")

pytestmark = pytest.mark.engine


def computed(runs: list[dict[str, Any]], scratch: Path, **environment: str) -> dict[str, Any]:
    """The runs in one engine process; by name."""
    child = subprocess.run(
        [sys.executable, str(HERE / "engine_run.py"), json.dumps(runs)],
        env={**os.environ, "VLLM_NO_USAGE_STATS": "1", **environment},
        cwd=scratch,
        capture_output=True,
        text=True,
    )
    line = next((line for line in child.stdout.splitlines() if line.startswith("RESULT ")), None)
    assert line is not None, child.stderr[-3000:]
    result: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
    return result


@pytest.fixture(scope="module")
def others(tiny_qwen3_vl: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Tiny Qwen2.5-VL and Qwen3-VL-MoE."""
    paths = {}
    for kind in ("qwen2_5", "moe"):
        out = tmp_path_factory.mktemp("other") / kind
        script = [sys.executable, str(HERE / "tiny_other.py"), kind, str(out), str(tiny_qwen3_vl)]
        subprocess.run(script, check=True, capture_output=True)
        paths[kind] = str(out)
    return paths


@pytest.fixture(scope="module")
def ours(
    tiny_hidream: Path, tiny_qwen3_vl: Path, others: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """Everything with the package installed and on."""
    plain, hidream = str(tiny_qwen3_vl), str(tiny_hidream)
    off = {"architectures": [names.HIDREAM_O1]}
    runs = [
        {"name": "stock plain", "model": plain},
        {"name": "stock hidream", "model": hidream},
        {"name": "ours plain", "model": plain, "overrides": {"architectures": [names.QWEN3_VL]}},
        {"name": "ours hidream", "model": hidream, "overrides": off},
        {"name": "ours drawing", "model": hidream, "overrides": {**off, names.DRAWING_KEY: True}},
        {"name": "stock moe", "model": others["moe"]},
        {"name": "ours moe", "model": others["moe"], "overrides": {"architectures": [names.QWEN3_VL_MOE]}},
        {"name": "qwen2.5", "model": others["qwen2_5"]},
    ]
    return computed(runs, tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def without(tiny_qwen3_vl: Path, others: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Stock models with ASCEND_VL=off, and one of our architectures, which is not there then."""
    runs = [
        {"name": "stock plain", "model": str(tiny_qwen3_vl)},
        {"name": "qwen2.5", "model": others["qwen2_5"]},
        {"name": "ours", "model": str(tiny_qwen3_vl), "overrides": {"architectures": [names.QWEN3_VL]}},
    ]
    return computed(runs, tmp_path_factory.mktemp("off"), ASCEND_VL="off")


def answered(run: dict[str, Any]) -> tuple[Any, Any]:
    assert "error" not in run, run["error"][:2000]
    return run["tokens"], run["logits"]


def test_stock_vllm_fails_on_hidream(ours: dict[str, Any]) -> None:
    assert "There is no module or parameter named 'model'" in ours["stock hidream"]["error"]


@pytest.mark.parametrize("name", ["ours plain", "ours hidream", "ours drawing"])
def test_ours_computes_stock_logits_bit_for_bit(ours: dict[str, Any], name: str) -> None:
    assert answered(ours[name]) == answered(ours["stock plain"])
    assert len(ours[name]["logits"]) == 8
    assert len(set(ours[name]["logits"])) > 4


def test_the_head_is_skipped_unread_or_loaded_in_float32(ours: dict[str, Any]) -> None:
    skipped, loaded = ours["ours hidream"], ours["ours drawing"]
    assert not [name for name in skipped["read"] if name.startswith(HEAD)]
    assert skipped["read"] == ours["stock plain"]["read"]
    assert skipped["parameters"] == ours["stock plain"]["parameters"]
    assert len([name for name in loaded["read"] if name.startswith(HEAD)]) == 9
    assert len(set(loaded["parameters"]) - set(skipped["parameters"])) == 9
    assert loaded["head_dtypes"] == ["torch.float32"]


def test_moe_is_served_by_our_class_with_stock_logits(ours: dict[str, Any]) -> None:
    assert answered(ours["ours moe"]) == answered(ours["stock moe"])
    assert ours["ours moe"]["class"].startswith("ascend_vl.models.ascend_qwen3_vl_moe.")


def test_our_classes_keep_upstreams_names(ours: dict[str, Any]) -> None:
    for name in ("plain", "moe"):
        stock, mine = ours[f"stock {name}"]["class"], ours[f"ours {name}"]["class"]
        assert stock.rpartition(".")[2] == mine.rpartition(".")[2]
        assert stock.startswith("vllm.") and mine.startswith("ascend_vl.")


@pytest.mark.parametrize("name", ["stock plain", "qwen2.5"])
def test_other_models_are_untouched_by_the_installed_package(
    ours: dict[str, Any], without: dict[str, Any], name: str
) -> None:
    assert answered(ours[name]) == answered(without[name])
    assert ours[name]["class"] == without[name]["class"]
    assert ours[name]["class"].startswith("vllm.")


def test_off_means_off(without: dict[str, Any]) -> None:
    assert names.QWEN3_VL in without["ours"]["error"]
