"""What plan prints is read by lint in every form; options are those of the real vLLM; repairs are judged again."""

import re
from typing import Any

import pytest

from ascend_vl.machine import describe
from ascend_vl.plan import Wishes, resolve
from ascend_vl.plan.lint import lint
from ascend_vl.plan.lint.container import read_size
from ascend_vl.plan.model import known_model
from ascend_vl.plan.outputs import FORMS
from ascend_vl.rules import table, vllm_flags


def text(form: str, chip: str, **wishes: Any) -> str:
    model = known_model("qwen3-vl-32b" if chip != "cpu" else "qwen3-vl-2b")
    assert model is not None
    machine = describe(chip="cpu", memory=64) if chip == "cpu" else describe(chip=chip, chips=2)
    return FORMS[form](resolve(model, Wishes(**wishes), machine))


def rules(given: str, chip: str | None = None, version: str | None = None) -> list[str]:
    return [finding.rule for finding in lint(given, chip, version).findings]


@pytest.mark.parametrize("chip", ["300i-duo", "800i-a2", "cpu"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_plan_is_read_and_clean(form: str, chip: str) -> None:
    given = text(form, chip)
    assert rules(given, chip) == []
    spoilt = given.replace("--max-num-seqs", "--max-num-sequences")
    assert rules(spoilt, chip) == ["lint-flag-unknown"]


def test_kubernetes_objects_are_judged_as_containers() -> None:
    given = text("k8s", "300i-duo", tensor_parallel_size=2, max_model_len=8192)
    fewer = re.sub(r"(huawei.com/Ascend310P: ).2.", r"\g<1>'1'", given)
    assert rules(fewer, "300i-duo") == ["lint-too-few-devices"]
    assert rules(given.replace("10Gi", "1Gi"), "300i-duo") == ["lint-shm-small"]
    assert rules(given.replace("float16", "bfloat16"), "300i-duo") == ["flag-dtype-bfloat16-310p"]
    assert rules("apiVersion: v1\nkind: Service\n") == ["lint-nothing"]
    for broken in ("apiVersion: v1\n\t- [", "apiVersion: v1\ncontainers: 3\n", "apiVersion:\n"):
        lint(broken)


def test_a_unit_keeps_its_line_numbers() -> None:
    given = text("systemd", "300i-duo").replace("--dtype float16", "--dtype bfloat16")
    line = next(number for number, one in enumerate(given.splitlines(), 1) if one.startswith("ExecStart="))
    finding = next(one for one in lint(given, "300i-duo").findings if one.rule == "flag-dtype-bfloat16-310p")
    assert finding.line == line


@pytest.mark.parametrize(
    ("flag", "version", "told"),
    [
        ("--max-model-length 10", None, "--max-model-len"),
        ("--tensor-paralel-size 2", "0.18.0", "--tensor-parallel-size"),
        ("--nnodes 2", "0.11.0", "0.18.0"),
    ],
)
def test_an_option_that_vllm_does_not_have(flag: str, version: str | None, told: str) -> None:
    report = lint(f"vllm serve m {flag} --max-model-len 10", None, version)
    finding = next(one for one in report.findings if one.rule == "lint-flag-unknown")
    assert finding.what == flag.split()[0] and told in finding.fix.en and told in finding.fix.zh
    assert report.exit_code == 1


@pytest.mark.parametrize(
    "flag",
    ["--nnodes 2", "--hf-overrides.architectures x", "--max_model_len 5", "-tp 2", "-O3", "--$FLAG", "--max-model 5"],
)
def test_options_that_vllm_has_in_any_spelling(flag: str) -> None:
    assert "lint-flag-unknown" not in rules(f"vllm serve m {flag}", None, "0.23.0.post1")


def test_every_flag_of_the_rule_table_exists() -> None:
    for row in table().flags:
        assert any(row.name in flags for flags in vllm_flags.by_release().values()), row.name


def test_the_releases_beside_an_unlisted_one_are_asked() -> None:
    assert list(vllm_flags.candidates("A2", "0.20.0")) == ["0.18.0", "0.23.0.post1"]
    assert list(vllm_flags.candidates("A2", "0.18.0")) == ["0.18.0"]
    assert list(vllm_flags.candidates("cpu", None)) == ["cpu"]
    assert len(vllm_flags.candidates(None, None)) == len(vllm_flags.by_release()) >= 5


def test_what_the_repair_leaves_is_named() -> None:
    given = "vllm serve m --dtype bfloat16 --max-model-len 4096 --limit-mm-per-prompt '{image:2}'"
    report = lint(given, "300i-duo")
    assert "--dtype float16" in report.repaired
    remaining = [finding.rule for finding in report.remaining]
    assert "lint-json-invalid" in remaining and "flag-dtype-bfloat16-310p" not in remaining


def test_small_shared_memory_is_seen_without_a_known_chip() -> None:
    run = "docker run --shm-size=1g --device /dev/davinci0 --device /dev/davinci1 IMAGE bash\n"
    assert "lint-shm-small" in rules(run + "vllm serve m --tensor-parallel-size 2")
    assert "lint-shm-small" in rules(
        run.replace(" --device /dev/davinci1", "") + "vllm serve m --tensor-parallel-size 2", "300i-duo"
    )
    assert "lint-shm-small" not in rules(run + "vllm serve m --tensor-parallel-size 1")


def test_sizes() -> None:
    assert read_size("10g") == read_size("10Gi") == read_size("10GiB") == 10 * 2**30
    assert read_size("much") is None


def test_a_variable_passed_on_by_name_stays_so() -> None:
    run = "docker run -e KEY -e A=1 quay.io/ascend/vllm-ascend:v0.18.0-310p vllm serve m --dtype bfloat16"
    repaired = lint(run, "300i-duo").repaired
    assert "-e KEY \\" in repaired and "-e A=1 \\" in repaired
