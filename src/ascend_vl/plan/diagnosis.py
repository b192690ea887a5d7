"""Facts, verdict, adaptations and troubles of a machine put together, and the command to run next."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ascend_vl.adaptations import Finding, Outcome
from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text
from ascend_vl.machine import Machine
from ascend_vl.machine.checks import Trouble, troubles
from ascend_vl.plan import adapting
from ascend_vl.plan.field_report import FieldReport
from ascend_vl.rules.verdict import WORDS, Verdict, release_verdict

if TYPE_CHECKING:
    import httpx

Health = Literal["healthy", "degraded", "cannot-serve"]
GIB = 2**30
# What a machine without chips and engine can do: it is true anywhere, and needs no file.
ELSEWHERE = "ascend-vl plan Qwen/Qwen3-VL-8B-Instruct --chip 300i-duo"
SECONDS = 10.0


@dataclass(frozen=True)
class Judgement:
    """The verdict on the installed release, ready to show."""

    verdict: Verdict

    @property
    def words(self) -> Text:
        """Status in words."""
        return WORDS[self.verdict.status]

    @property
    def why(self) -> Text:
        """Why."""
        return self.verdict.why

    @property
    def image(self) -> str | None:
        """The image to move to, None when this release is the best."""
        return self.verdict.image

    @property
    def derived(self) -> tuple[str, ...]:
        """Lines of a derived image that mend what this image ships wrong."""
        return self.verdict.derived

    @property
    def evidence(self) -> tuple[str, ...]:
        """Where it is known from."""
        return self.verdict.evidence


@dataclass(frozen=True)
class Diagnosis:
    """Everything doctor shows. `facts` are label and value, `server` lines about a running server, `field` a report
    that was read instead of a machine.
    """

    facts: tuple[tuple[Text, str], ...]
    verdict: Judgement | None
    adaptations: tuple[Outcome, ...]
    troubles: tuple[Trouble, ...]
    server: tuple[str, ...]
    next_command: str
    machine: Machine
    field: FieldReport | None = None

    @property
    def health(self) -> Health:
        """cannot-serve with an error or a release that fails; degraded with a warning; else healthy."""
        severities = {trouble.severity for trouble in self.troubles}
        if "error" in severities or (self.verdict is not None and not self._servable):
            return "cannot-serve"
        return "degraded" if "warning" in severities or not self._good else "healthy"

    @property
    def _servable(self) -> bool:
        return self.verdict is None or self.verdict.verdict.status not in ("fails", "unsupported")

    @property
    def _good(self) -> bool:
        return self.verdict is None or self.verdict.verdict.good

    @property
    def exit_code(self) -> int:
        """0 healthy, 1 anything else."""
        return 0 if self.health == "healthy" else 1

    def to_json(self) -> dict[str, Any]:
        """Schema 1 of `doctor --json`."""
        machine, judged = self.machine, self.verdict
        return {
            "schema": 1,
            "health": self.health,
            "emulated": machine.emulated,
            "described": machine.described,
            "facts": {str(label.en): value for label, value in self.facts},
            "chips": [
                {
                    "device": chip.device,
                    "card": chip.card,
                    "chip": chip.chip,
                    "name": chip.name,
                    "kind": chip.kind,
                    "product": chip.product,
                    "memory_bytes": chip.memory_bytes,
                    "used_bytes": chip.used_bytes,
                    "health": chip.health,
                    "holders": [vars(holder) for holder in chip.holders],
                }
                for chip in machine.chips
            ],
            "packages": machine.packages,
            "verdict": None
            if judged is None
            else {
                "status": judged.verdict.status,
                "why": str(judged.why),
                "move_to": judged.verdict.move_to,
                "image": judged.image,
                "derived": list(judged.derived),
                "evidence": list(judged.evidence),
                "tag": judged.verdict.tag,
            },
            "adaptations": [outcome.to_json() for outcome in self.adaptations],
            "troubles": [
                {
                    "id": one.id,
                    "severity": one.severity,
                    "what": str(one.what),
                    "why": str(one.why),
                    "do": str(one.do),
                    "rule": one.rule,
                    "evidence": list(one.evidence),
                }
                for one in self.troubles
            ],
            "server": list(self.server),
            "field": None if self.field is None else field_json(self.field),
            "next": self.next_command,
        }


def field_json(report: FieldReport) -> dict[str, Any]:
    """Answers by label, and the questions of the rule table they settle."""
    answers = {
        label: {"fault": one.fault, "reason": str(one.reason), "numbers": dict(one.numbers)}
        for label, one in report.answers.items()
    }
    return {"answers": answers, "settled": [one.to_json() for one in report.settled]}


def examine(
    machine: Machine,
    findings: dict[str, Finding] | None = None,
    server: tuple[str, ...] | None = None,
    field: FieldReport | None = None,
) -> Diagnosis:
    """Everything that facts, rules and (where run) probes say; a field report brings its own findings."""
    if field is not None:
        findings = field.findings
    found = troubles(machine)
    verdict = None
    if machine.chips and machine.kind != "none":
        verdict = Judgement(release_verdict(machine.vllm_ascend, machine.kind, machine.packages.get("transformers")))
    return Diagnosis(
        facts=tuple(facts(machine)),
        verdict=verdict,
        adaptations=tuple(adapting.outcomes(machine, findings or {})) if machine.chips else (),
        troubles=tuple(found),
        server=server or (),
        next_command=next_command(machine, verdict, found),
        machine=machine,
        field=field,
    )


def facts(machine: Machine) -> list[tuple[Text, str]]:
    """Label and value of every fact that is known."""
    lines = [(Text("chips", "芯片"), chips_in_words(machine))]
    if machine.emulated:
        lines.append((Text("evidence", "证据"), str(Text("emulated: not hardware", "emulated（模拟）：并非硬件"))))
    for chip in () if machine.described else machine.chips:
        used = f"{chip.used_bytes / GIB:.1f} / {chip.memory_bytes / GIB:.1f} GiB"
        holders = ", ".join(f"{holder.name} ({holder.pid})" for holder in chip.holders)
        place = f"NPU {chip.card} chip {chip.chip}, {chip.name}, {chip.health}, {used}"
        lines.append(
            (Text(f"davinci{chip.device}", f"davinci{chip.device}"), f"{place}{'; ' + holders if holders else ''}")
        )
    known = [
        (Text("driver", "驱动"), machine.driver),
        (Text("firmware", "固件"), machine.firmware),
        (Text("CANN", "CANN"), machine.cann),
        (Text("vllm-ascend built for", "vllm-ascend 构建目标"), None if machine.described else machine.device_type),
        (Text("container", "容器"), None if machine.described else machine.container),
        (Text("architecture", "架构"), None if machine.described else machine.architecture),
        (Text("Python", "Python"), machine.python),
    ]
    lines += [(label, value) for label, value in known if value]
    if not machine.described or not machine.chips:
        memory = f"{machine.memory_available_bytes / GIB:.1f} / {machine.memory_bytes / GIB:.1f} GiB"
        lines.append((Text("host memory free", "主机可用内存"), f"{memory}, {machine.cpus} CPU"))
    if machine.packages:
        packages = ", ".join(f"{name} {version}" for name, version in machine.packages.items())
        lines.append((Text("packages", "软件包"), packages))
    return lines


def chips_in_words(machine: Machine) -> str:
    """Cards and chips: both counted, because a card may hold two."""
    if not machine.chips:
        return str(Text("none (CPU)", "无（CPU）"))
    cards = len({chip.card for chip in machine.chips})
    first = machine.chips[0]
    size = f"{machine.chip_bytes / GIB:.1f} GiB"
    return str(
        Text(
            f"{len(machine.chips)} x {first.name} ({first.product or first.kind}) on {cards} card(s), {size} a chip",
            f"{cards} 张卡上共 {len(machine.chips)} 颗 {first.name}（{first.product or first.kind}），每颗 {size}",
        )
    )


def next_command(machine: Machine, verdict: Judgement | None, found: list[Trouble]) -> str:
    """The exact command to run next."""
    errors = [trouble for trouble in found if trouble.severity == "error"]
    transformers = next((trouble for trouble in errors if trouble.id == "transformers-wrong"), None)
    if transformers is not None and verdict is not None and verdict.derived:
        return verdict.derived[1].removeprefix("RUN ")
    if verdict is not None and verdict.verdict.image and not verdict.verdict.good:
        return f"docker pull {verdict.verdict.image}"
    if errors and machine.chips and errors[0].id in ("npu-smi-missing", "npu-smi-failed", "built-for-another-chip"):
        return "ascend-vl plan MODEL --as docker"
    if errors and errors[0].id == "engine-missing":
        return "ascend-vl plan MODEL --as docker" if machine.chips else ELSEWHERE
    if machine.described and machine.chips:
        product = machine.product or machine.chips[0].name
        release = f" --vllm-ascend {machine.vllm_ascend}" if machine.vllm_ascend else ""
        return f"ascend-vl plan MODEL --chip {product} --chips {len(machine.chips)}{release}"
    if errors:
        return f"ascend-vl doctor --explain {errors[0].rule or errors[0].id}"
    return "ascend-vl serve MODEL"


def run_probes(
    machine: Machine, anyway: bool, told: Callable[[str, Finding], None] | None = None
) -> dict[str, Finding]:
    """Ask this machine's operators, at the shapes of Qwen3-VL-8B, each in a child process; `told` hears each answer.

    Raises AscendVLError `nothing-to-probe` on a machine without chips or one that is only described.
    """
    if machine.described or not machine.chips:
        raise AscendVLError(
            "nothing-to-probe",
            Text("There is nothing to probe.", "没有可探测的对象。"),
            Text("Probes run on the chips of this machine.", "探测在本机芯片上运行。"),
            Text("Run doctor --probe on the machine with the chips.", "请在有芯片的机器上运行 doctor --probe。"),
        )
    from ascend_vl import probes

    dtype = "float16" if machine.kind == "310P" else "bfloat16"
    return probes.run(adapting.facts_of(machine), probes.Shapes(dtype=dtype), anyway=anyway, told=told)


def server_status(url: str, api_key: str | None = None) -> tuple[str, ...]:
    """What a running server says of itself, as lines. Raises AscendVLError `server-unreachable`."""
    import httpx

    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        with httpx.Client(base_url=url.rstrip("/"), headers=headers, timeout=SECONDS, trust_env=False) as client:
            models = client.get("/v1/models")
            status = client.get("/v1/ascend_vl/status")
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise AscendVLError(
            "server-unreachable",
            Text(f"{url} does not answer.", f"{url} 没有响应。"),
            Text(str(error) or type(error).__name__, str(error) or type(error).__name__),
            Text("Check the address, and that the server is running.", "检查地址以及服务是否在运行。"),
        ) from None
    lines = [f"GET /v1/models: {models.status_code}", f"GET /v1/ascend_vl/status: {status.status_code}"]
    if status.status_code == 401:
        lines.append(str(Text("the key is missing or wrong: --api-key", "密钥缺失或错误：--api-key")))
    elif status.status_code != 200:
        lines.append(str(Text("ascend-vl is not active in that server", "该服务中 ascend-vl 未生效")))
    else:
        lines += _worker_lines(status)
    return tuple(lines)


def _worker_lines(status: "httpx.Response") -> list[str]:
    try:
        body = status.json()
    except ValueError:
        return [str(Text("the status is no JSON", "状态不是 JSON"))]
    lines = []
    if isinstance(body, dict) and isinstance(body.get("versions"), dict):
        versions = ", ".join(f"{name} {version}" for name, version in body["versions"].items())
        lines.append(f"{Text('its packages', '其软件包')}: {versions}")
    if "emulat" in status.text:
        lines.append(str(Text("emulated: that server runs on no hardware", "emulated（模拟）：该服务不在硬件上运行")))
    workers = body.get("workers") if isinstance(body, dict) else None
    for number, worker in enumerate(workers if isinstance(workers, list) else []):
        listed = worker.get("adaptations", []) if isinstance(worker, dict) else []
        for item in listed if isinstance(listed, list) else []:
            if isinstance(item, dict):
                lines.append(f"worker {number}: {item.get('id')}: {item.get('state')}")
    return lines
