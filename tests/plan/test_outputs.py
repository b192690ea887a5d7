"""The forms of a plan, read back as what they are."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from ascend_vl.machine import describe
from ascend_vl.plan import Plan, Wishes, resolve
from ascend_vl.plan.lint import lint
from ascend_vl.plan.model import known_model
from ascend_vl.plan.outputs import FORMS, plan_json
from ascend_vl.plan.outputs.container import box, load_seconds

ROOT = Path(__file__).parents[2]


def plan(name: str = "qwen3-vl-32b", chip: str = "300i-duo", chips: int = 4, **wishes: Any) -> Plan:
    model = known_model(name)
    assert model is not None
    return resolve(model, Wishes(**wishes), describe(chip=chip, chips=chips))


FOUND = plan(tensor_parallel_size=2, max_model_len=8192)


def text(form: str, found: Plan = FOUND) -> str:
    return FORMS[form](found)


def test_the_command_is_the_plans() -> None:
    lines = text("command").splitlines()
    assert lines[0] == "export VLLM_MEDIA_CONNECTOR=ascend_vl"
    assert shlex.split(" ".join(line.removesuffix("\\") for line in lines[1:])) == FOUND.command


def test_docker_has_every_device_and_mount() -> None:
    out = text("docker")
    for wanted in (
        "FROM quay.io/ascend/vllm-ascend:v0.23.0.post1-310p",
        "--device /dev/davinci0",
        "--device /dev/davinci1",
        "--device /dev/davinci_manager",
        "--device /dev/devmm_svm",
        "--device /dev/hisi_hdc",
        "/usr/local/Ascend/driver/lib64:",
        "/usr/local/Ascend/driver/version.info:",
        "--shm-size=10g",
        "--publish 127.0.0.1:8000:8000",
        "--env VLLM_API_KEY",
    ):
        assert wanted in out
    assert "/dev/davinci2" not in out
    assert "/dev/ascend_manager" not in out


@pytest.mark.parametrize("chip", ["300i-duo", "cpu"])
def test_what_an_image_is_made_of_is_in_a_clone(chip: str) -> None:
    """The package is on no index, so the build copies it."""
    model = known_model("qwen3-vl-2b")
    assert model is not None
    found = resolve(model, Wishes(), describe(chip=chip, memory=64 if chip == "cpu" else None))
    out = text("docker", found)
    assert "-f - . <<'END'" in out
    copied = [word for line in box(found).build if line.startswith("COPY ") for word in line.split()[1:-1]]
    assert all((ROOT / name).exists() for name in copied)
    assert copied == ["."] or {"pyproject.toml", "README.md", "src"} <= set(copied)
    assert not re.search(r"pip install \S*ascend-vl(\s|$|\[)", out.replace("/opt/ascend-vl", "DIRECTORY"))
    inline = yaml.safe_load(text("compose", found))["services"]["ascend-vl"]["build"]["dockerfile_inline"]
    # Compose fills in single dollars itself.
    assert inline.replace("$$", "").count("$") == 0
    assert inline.replace("$$", "$").splitlines() == list(box(found).build)


@pytest.mark.parametrize("form", ["k8s", "systemd"])
def test_forms_without_a_build_say_where_the_image_is_from(form: str) -> None:
    assert text(form).startswith("# The image is made by") or text(form).startswith("# 镜像")


def test_the_reason_for_the_cache_of_a_cpu_is_true() -> None:
    for name in ("qwen3-vl-2b", "qwen3-vl-30b-a3b"):
        model = known_model(name)
        assert model is not None
        for length in (2048, 8192):
            found = resolve(model, Wishes(max_model_len=length), describe(chip="cpu", memory=256))
            value = next(value for value in found.values if value.name == "kv_cache_memory_bytes")
            assert ("two requests" in value.reason.en) == (found.memory.kv_tokens >= 2 * length)


@pytest.mark.parametrize("form", ["command", "docker", "compose"])
@pytest.mark.parametrize("chip", ["300i-duo", "800i-a2", "a3"])
def test_our_own_linter_finds_no_fault(form: str, chip: str) -> None:
    found = plan("qwen3-vl-8b", chip, 2, tensor_parallel_size=2)
    report = lint(text(form, found), chip, "0.23.0.post1")
    assert [one.rule for one in report.findings if one.severity != "note"] == []


def test_compose() -> None:
    service = yaml.safe_load(text("compose"))["services"]["ascend-vl"]
    assert service["shm_size"] == "10g"
    assert "/dev/davinci1:/dev/davinci1" in service["devices"]
    assert service["command"][:2] == ["vllm", "serve"]
    assert json.loads(service["command"][service["command"].index("--hf-overrides") + 1])["architectures"]
    assert service["healthcheck"]["start_period"] == f"{load_seconds(FOUND)}s"
    assert "&id" not in text("compose")


def test_kubernetes() -> None:
    deployment, service = yaml.safe_load_all(text("k8s"))
    pod = deployment["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert container["resources"]["limits"] == {"huawei.com/Ascend310P": "2"}
    probe = container["startupProbe"]
    assert probe["failureThreshold"] * probe["periodSeconds"] >= load_seconds(FOUND)
    assert pod["volumes"][0]["emptyDir"]["medium"] == "Memory"
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert all(not mount["mountPath"].startswith("/dev/davinci") for mount in container["volumeMounts"])
    assert service["spec"]["selector"] == deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    on_a2 = next(iter(yaml.safe_load_all(text("k8s", plan("qwen3-vl-8b", "800i-a2", 1)))))
    assert "huawei.com/Ascend910" in on_a2["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]


def test_the_start_up_probe_grows_with_the_weights() -> None:
    assert load_seconds(plan("qwen3-vl-2b")) < load_seconds(plan("qwen3-vl-8b")) < load_seconds(plan("hidream-o1"))


def test_systemd() -> None:
    out = text("systemd")
    for wanted in ("StartLimitBurst=5", "Restart=on-failure", "TimeoutStopSec=90", "ExecStop=/usr/bin/docker stop"):
        assert wanted in out
    start = next(line for line in out.splitlines() if line.startswith("ExecStart="))
    words = shlex.split(start.removeprefix("ExecStart="))
    assert words[:2] == ["/usr/bin/docker", "run"]
    assert json.loads(words[words.index("--hf-overrides") + 1])["architectures"]
    assert "--rm" in words


def test_systemd_on_a_cpu_runs_no_container() -> None:
    model = known_model("qwen3-vl-2b")
    assert model is not None
    out = text("systemd", resolve(model, Wishes(), describe(chip="cpu", memory=64)))
    assert "docker" not in out
    assert "ascend_vl.serve.launch serve Qwen/Qwen3-VL-2B-Instruct" in out


@pytest.mark.parametrize("form", list(FORMS))
def test_the_key_is_in_no_form(form: str) -> None:
    assert "s3cret" not in text(form, plan(api_key="s3cret"))


def test_200i_pro_is_privileged_and_has_its_devices() -> None:
    out = text("docker", plan("qwen3-vl-2b", "200i-pro", 1))
    assert "--privileged" in out and "/dev/ascend_manager" in out


def test_several_machines_are_spelled_out() -> None:
    out = text("command", plan("qwen3-vl-32b", "a3", 2, nodes=2, master_addr="10.0.0.1"))
    assert out.count("vllm serve") == 2
    assert "--node-rank 0" in out and "--node-rank 1" in out
    assert out.count("--headless") == 1


def test_json_has_the_sum_and_the_reasons() -> None:
    value = json.loads(json.dumps(plan_json(FOUND)))
    assert value["schema"] == 1
    assert value["command"] == FOUND.command
    assert value["memory"]["left"] == value["memory"]["budget"] - value["memory"]["weights"] - value["memory"]["non_kv"]
    assert {item["source"] for item in value["values"]} <= {"rule", "default", "user"}
    assert value["fits"] is True
