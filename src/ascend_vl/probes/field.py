"""The field report: every question to the chip, asked within a time budget, in one JSON file that can be taken away."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ascend_vl.adaptations.process_facts import process_facts
from ascend_vl.adaptations.record import Facts, Finding, MachineFacts
from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text
from ascend_vl.probes import cache, runner
from ascend_vl.probes.field_questions import QUESTIONS
from ascend_vl.probes.registry import PROBES
from ascend_vl.probes.shapes import Shapes, from_json

SCHEMA = "ascend-vl-field/1"
MINUTES = 15.0
# No question is worth more of the budget than this, seconds.
LONGEST = 180.0
# The last lines of the newest device log that go into the report.
LOG_LINES = 200
LOG_FOLDER = Path("ascend") / "log" / "debug" / "plog"

# Vision towers of the published checkpoints: heads of 8B, 30B-A3B, 32B, 235B and HiDream-O1 are 72 wide, of 2B and
# 4B 64.
TOWERS = {
    "72": Shapes(vision_heads=16, head_size=72, hidden=4096, merged=12288, pictures=(3520, 480, 64)),
    "64": Shapes(vision_heads=16, head_size=64, hidden=2560, merged=7680, pictures=(3520, 480, 64)),
}
# What these questions do not cover, said in the report so that nobody reads more into it.
NOT_ASKED = {
    "conformance-on-the-demo-checkpoint": "run: ascend-vl verify on the demo checkpoint, and send its report",
    "text-of-hidream": "run: ascend-vl ask MODEL with the real weights, and send the answers",
}


def questions() -> list[tuple[str, str]]:
    """(id of the probe, tower) in the order in which they are asked; those that may end the process are no
    different.
    """
    per_tower = [(name, tower) for name in PROBES for tower in TOWERS]
    return per_tower + [(name, "72") for name in QUESTIONS]


def ask_all(
    out: Path,
    *,
    minutes: float = MINUTES,
    anyway: bool = False,
    fresh: bool = False,
    told: Callable[[str, Finding], None] | None = None,
) -> dict[str, Any]:
    """Ask, write `out` after every answer, and return the report. An existing report of this machine is carried on.

    Raises AscendVLError `field-no-chip` without an NPU and `field-unwritable` when `out` cannot be written.
    """
    facts = process_facts()
    if facts.chip is None:
        raise AscendVLError(
            "field-no-chip",
            Text("There is no NPU here to ask.", "本机没有可询问的 NPU。"),
            Text("npu-smi shows no chip and torch_npu has no device.", "npu-smi 未显示芯片，torch_npu 也没有设备。"),
            Text(
                "Run it in the container that serves, on the machine with the chip.",
                "请在有芯片的机器上、用于服务的容器内运行。",
            ),
        )
    begin = time.monotonic()
    answers: dict[str, Any] = {} if fresh else known(out, facts)
    for name, tower in questions():
        label = f"{name}@{tower}"
        left = minutes * 60 - (time.monotonic() - begin)
        if answers.get(label, {}).get("fault") is not None:
            continue
        if left <= 0:
            answers[label] = cache.to_json(Finding(None, Text("not asked: the time was over", "未询问：时间已用完")))
            continue
        shapes = shapes_for(tower, facts)
        finding = runner.ask(name, shapes, anyway=anyway, timeout=min(LONGEST, left))
        if name in PROBES:
            cache.store(PROBES[name], facts, shapes, finding)
        answers[label] = cache.to_json(finding) | {"shapes": shapes.to_json()}
        write(out, report(facts, answers, time.monotonic() - begin))
        if told is not None:
            told(label, finding)
    final = report(facts, answers, time.monotonic() - begin)
    write(out, final)
    return final


def shapes_for(tower: str, facts: Facts) -> Shapes:
    """The tower's shapes in the dtype that the chip serves in."""
    dtype = "float16" if (facts.chip or "").startswith("310P") else "bfloat16"
    return from_json(TOWERS[tower].to_json() | {"dtype": dtype})


def report(facts: Facts, answers: dict[str, Any], seconds: float) -> dict[str, Any]:
    """The file's content."""
    from ascend_vl import __version__
    from ascend_vl.machine import detect

    machine = detect()
    return {
        "schema": SCHEMA,
        "ascend_vl": __version__,
        # Answers of the emulator are no evidence about hardware; whoever reads the file must see it.
        "emulated": machine.emulated,
        "facts": asdict(MachineFacts(*(getattr(facts, name) for name in cache.FACTS))),
        "chips": [chip.name for chip in machine.chips],
        "settings": cache.settings() if not machine.emulated else {},
        "seconds": round(seconds, 1),
        "answers": answers,
        "not_asked": NOT_ASKED,
        "device_log": device_log(),
    }


def device_log(home: Path | None = None) -> list[str]:
    """The last lines of the newest device log, without names, addresses and keys."""
    from ascend_vl.machine.redaction import redact

    folder = (home or Path.home()) / LOG_FOLDER
    logs = sorted(folder.glob("*.log"), key=lambda path: path.stat().st_mtime) if folder.is_dir() else []
    if not logs:
        return []
    return [redact(line) for line in logs[-1].read_text(errors="replace").splitlines()[-LOG_LINES:]]


def known(path: Path, facts: Facts) -> dict[str, Any]:
    """Answers of an earlier report of the same machine; none when there is no such file."""
    try:
        earlier = load(path)
    except AscendVLError:
        return {}
    same = earlier["facts"] == {name: getattr(facts, name) for name in cache.FACTS}
    return dict(earlier["answers"]) if same else {}


def write(path: Path, value: dict[str, Any]) -> None:
    """Write the report whole or not at all. Raises AscendVLError `field-unwritable`."""
    partial = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(value, ensure_ascii=False, indent=1, default=str), encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise AscendVLError(
            "field-unwritable",
            Text(f"{path} cannot be written.", f"无法写入 {path}。"),
            Text(str(error.strerror), str(error.strerror)),
            Text("Name another file with -o.", "请用 -o 指定其他文件。"),
        ) from None


def load(path: Path) -> dict[str, Any]:
    """A field report from its file. Raises AscendVLError `field-unreadable`."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if value["schema"] != SCHEMA or not isinstance(value["answers"], dict) or not isinstance(value["facts"], dict):
            raise ValueError(f"schema {value['schema']!r}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AscendVLError(
            "field-unreadable",
            Text(f"{path} is no field report.", f"{path} 不是现场报告。"),
            Text(str(error), str(error)),
            Text("ascend-vl field -o FILE writes one.", "用 ascend-vl field -o FILE 生成。"),
        ) from None
    found: dict[str, Any] = value
    return found


def findings(value: dict[str, Any], tower: str = "72") -> tuple[MachineFacts, dict[str, Finding]]:
    """The machine of a report and its answers at one tower by probe id, for the doctor and the plan."""
    answers = {
        label.partition("@")[0]: cache.from_json(answer)
        for label, answer in value["answers"].items()
        if label.endswith(f"@{tower}") and answer.get("fault") is not None
    }
    return MachineFacts(**value["facts"]), answers
