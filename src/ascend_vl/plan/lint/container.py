"""A `docker run` line or a compose service, and the findings about it."""

import re
from dataclasses import dataclass, field

from ascend_vl.language import Text
from ascend_vl.plan.lint import findings
from ascend_vl.plan.lint.findings import Finding
from ascend_vl.plan.lint.shell import Command, Word
from ascend_vl.rules import table, version_row
from ascend_vl.rules.conditions import Subject

_VALUED = {
    "-v", "-e", "-p", "-m", "-w", "-u", "-h", "-l", "--name", "--device", "--volume", "--env", "--shm-size", "--memory",
    "--network", "--net", "--ipc", "--entrypoint", "--mount", "--user", "--workdir", "--hostname", "--cpus",
    "--cpuset-cpus", "--ulimit", "--cap-add", "--security-opt", "--restart", "--env-file", "--runtime", "--group-add",
    "--label", "--publish", "--gpus", "--add-host", "--pid", "--log-driver", "--log-opt", "--tmpfs", "--memory-swap",
    "--pull", "--platform",
}  # fmt: skip
_UNITS = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30}
FRAMEWORK_FILE = re.compile(r"(?:^|/)(vllm|vllm_ascend|vllm-ascend)/\S*\.py\b")


@dataclass
class Container:
    """What a container is given. Lines are those of the text; sizes bytes; None is not said."""

    image: str = ""
    image_line: int = 0
    line: int = 0
    devices: list[str] = field(default_factory=list)
    mounts: list[str] = field(default_factory=list)
    environment: dict[str, Word] = field(default_factory=dict)
    shm: int | None = None
    host_ipc: bool = False
    privileged: bool = False
    ascend_runtime: bool = False
    published: bool = False
    command: tuple[Word, ...] = ()
    source: Command | None = None

    @property
    def chips(self) -> int | None:
        """Number of chips it sees, None when that cannot be told (privileged)."""
        if self.ascend_runtime and (visible := self.environment.get("ASCEND_VISIBLE_DEVICES")):
            return count_devices(visible.text)
        if self.privileged and not self.devices:
            return None
        return len({name for name in self.devices if re.fullmatch(r"/dev/davinci\d+", name)})


def count_devices(text: str) -> int | None:
    """How many devices a list such as 0,1 or 0-3 names, None when it cannot be read."""
    total = 0
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if match is None:
            return None
        low, high = int(match.group(1)), int(match.group(2) or match.group(1))
        total += max(0, high - low + 1)
    return total


def read_size(text: str) -> int | None:
    """Bytes of docker's size (10g, 64m) or Kubernetes' (10Gi), None when it cannot be read."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([bkmg]?)(?:i?b?)", text.strip().lower())
    return int(float(match.group(1)) * _UNITS[match.group(2)]) if match else None


def as_container(command: Command) -> Container | None:
    """The command as a container, None when it is no `docker run`."""
    words = command.words
    programs = ("docker", "podman", "nerdctl")
    if len(words) < 2 or words[0].text.split("/")[-1] not in programs or words[1].text not in ("run", "create"):
        return None
    found = Container(line=command.line, source=command)
    index = 2
    while index < len(words):
        word = words[index]
        if not word.text.startswith("-") or word.text == "-":
            break
        option, equals, value = word.text.partition("=")
        index += 1
        if not equals and option in _VALUED and index < len(words):
            value = words[index].text
            index += 1
        _option(found, option, value, word.line)
    if index < len(words):
        found.image, found.image_line = words[index].text, words[index].line
        found.command = words[index + 1 :]
    return found


def _option(found: Container, option: str, value: str, line: int) -> None:
    if option == "--device":
        found.devices.append(value.split(":")[0])
    elif option in ("-v", "--volume"):
        found.mounts.append(mounted(value))
    elif option == "--mount":
        parts = dict(part.partition("=")[::2] for part in value.split(","))
        found.mounts.append(_clean(parts.get("target") or parts.get("dst") or parts.get("destination") or ""))
    elif option in ("-e", "--env"):
        name, _, content = value.partition("=")
        found.environment[name] = Word(content, line)
    elif option == "--shm-size":
        found.shm = read_size(value)
    elif option == "--ipc":
        found.host_ipc = value == "host"
    elif option == "--privileged":
        found.privileged = value in ("", "true")
    elif option == "--runtime":
        found.ascend_runtime = value == "ascend"
    elif option in ("-p", "--publish", "-P", "--publish-all") or (option in ("--net", "--network") and value == "host"):
        found.published = True


def mounted(text: str) -> str:
    """The path inside the container that a volume option names."""
    parts = text.split(":")
    return _clean(parts[1] if len(parts) > 1 else parts[0])


def _clean(path: str) -> str:
    return path.rstrip("/") or "/"


def image_release(image: str) -> tuple[str | None, str | None]:
    """(vllm-ascend version, kind of chip) by the tag of an official image or of one that `plan` makes of it.

    (None, None) for any other image.
    """
    row = table().images[0]
    name, _, tag = image.rpartition(":")
    if "/" in tag or not (name.endswith("ascend/vllm-ascend") or name == "ascend-vl"):
        return None, None
    match = re.fullmatch(r"v?(\d[\w.]*?)((?:-[a-z0-9]+)*)", tag)
    if match is None:
        return None, None
    endings = match.group(2)
    for kind, suffix in row.suffixes.items():
        if suffix and suffix in endings.replace("-openeuler", ""):
            return match.group(1), kind
    return match.group(1), "A2"


def judge(container: Container, subject: Subject, tensor_parallel: int | None) -> list[Finding]:
    """Findings about one container."""
    return [
        *_image(container, subject),
        *_devices(container, subject, tensor_parallel),
        *_mounts(container, subject),
        *_shared_memory(container, subject, tensor_parallel),
        *_replaced(container),
    ]


def _image(container: Container, subject: Subject) -> list[Finding]:
    row = table().images[0]
    name, _, tag = container.image.rpartition(":")
    if "vllm-ascend" not in container.image:
        return []
    if not name or "/" in tag or tag.startswith(("latest", "main", "nightly")):
        return [findings.named("lint-image-untagged", container.image_line, container.image)]
    release, kind = image_release(container.image)
    found = []
    if kind and subject.kind in row.suffixes and kind != subject.kind:
        ending = row.suffixes[str(subject.kind)] or Text("no ending", "无后缀").en
        fix = Text(f"For {subject.kind} the ending is {ending}.", f"{subject.kind} 的后缀为 {ending}。")
        found.append(findings.named("lint-image-kind", container.image_line, container.image, fix=fix))
    known = version_row(release)
    if known is None:
        return found
    on_310p = (subject.kind or kind) == "310P"
    status, why = (known.on_310p, known.why_310p) if on_310p else (known.on_a2, known.why_a2)
    if status in ("unsupported", "fails"):
        found.append(findings.named("lint-image-release", container.image_line, container.image, text=why))
    elif status in ("adapted", "unverified"):
        found.append(findings.named("lint-image-legacy", container.image_line, container.image, text=why))
    return found


def _devices(container: Container, subject: Subject, tensor_parallel: int | None) -> list[Finding]:
    if subject.kind in (None, "cpu"):
        return []
    found = []
    chips = container.chips
    if chips == 0:
        found.append(findings.named("lint-no-device", container.line, "--device"))
    elif chips is not None and tensor_parallel is not None and chips < tensor_parallel:
        what = f"{chips} < --tensor-parallel-size {tensor_parallel}"
        found.append(findings.named("lint-too-few-devices", container.line, what))
    if container.ascend_runtime or container.privileged:
        return found
    for mount in table().mounts:
        wanted = mount.what == "device" and mount.required
        if wanted and (not mount.products or subject.product in mount.products) and mount.path not in container.devices:
            found.append(findings.named("lint-management-device-missing", container.line, mount.path))
    return found


def _mounts(container: Container, subject: Subject) -> list[Finding]:
    if subject.kind in (None, "cpu") or container.ascend_runtime:
        return []
    found = []
    for mount in table().mounts:
        if mount.what == "device" or any(covers(path, mount.path) for path in container.mounts):
            continue
        rule = "lint-mount-missing" if mount.required else "lint-mount-advised"
        found.append(findings.named(rule, container.line, mount.path))
    return found


def covers(mounted_path: str, wanted: str) -> bool:
    """Whether a mount at `mounted_path` holds `wanted`."""
    return wanted == mounted_path or wanted.startswith(mounted_path.rstrip("/") + "/")


def _shared_memory(container: Container, subject: Subject, tensor_parallel: int | None) -> list[Finding]:
    if container.host_ipc or subject.kind == "cpu" or (tensor_parallel or container.chips or 2) < 2:
        return []
    if subject.kind is None and "ascend" not in container.image and not container.devices:
        return []
    if container.shm is not None and container.shm >= 4 * 2**30:
        return []
    return [findings.named("lint-shm-small", container.line, "--shm-size")]


def _replaced(container: Container) -> list[Finding]:
    replaced = [path for path in container.mounts if FRAMEWORK_FILE.search(path)]
    return [findings.named("lint-framework-patched", container.line, path) for path in replaced]
