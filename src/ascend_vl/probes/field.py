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
from ascend_vl.probes import cache, field_engine, runner
from ascend_vl.probes.field_questions import QUESTIONS
from ascend_vl.probes.registry import PROBES
from ascend_vl.probes.shapes import Shapes, from_json

SCHEMA = "ascend-vl-field/1"
MINUTES = 15.0
# No question is worth more of the budget than this, seconds; an engine has to start for its own.
LONGEST = 180.0
LONGEST_ENGINE = 480.0
# The last lines of the newest device log that go into the report.
LOG_LINES = 200
LOG_FOLDER = Path("ascend") / "log" / "debug" / "plog"

# Vision towers of the published checkpoints: heads of 8B, 30B-A3B, 32B, 235B and HiDream-O1 are 72 wide, of 2B and
# 4B 64.
TOWERS = {
    "72": Shapes(vision_heads=16, head_size=72, hidden=4096, merged=12288, pictures=(3520, 480, 64)),
    "64": Shapes(vision_heads=16, head_size=64, hidden=2560, merged=7680, pictures=(3520, 480, 64)),
}
# Those that a CPU computes a slow reference for come last, so that a short run answers most.
SLOW = ("vision-zero-length", "vision-head-width", "vision-precision", "vision-borders")
# Where the weights for a question of an engine are missing, the report says what to do.
NOT_ASKED = {
    "conformance": "this installation has no demo checkpoint: install from the repository",
    "hidream-text": "ask again with --model DIRECTORY, the HiDream-O1 weights",
}


def questions() -> list[tuple[str, str]]:
    """(id, tower or "engine") in the order in which they are asked."""
    quick = [(name, tower) for tower in TOWERS for name in PROBES if name not in SLOW]
    slow = [[(name, tower) for name in PROBES if name in SLOW] for tower in TOWERS]
    engine = [(name, "engine") for name in field_engine.QUESTIONS]
    return [*quick, *((name, "72") for name in QUESTIONS), *slow[0], *engine, *slow[1]]


def weights(model: Path | None) -> dict[str, Path]:
    """The checkpoint of each question of an engine, as far as there is one."""
    from ascend_vl.demo.flow import CHECKPOINT

    found = {"conformance": CHECKPOINT, "hidream-text": model}
    return {name: path for name, path in found.items() if path is not None and (path / "config.json").is_file()}


def ask_all(
    out: Path,
    *,
    minutes: float = MINUTES,
    anyway: bool = False,
    fresh: bool = False,
    model: Path | None = None,
    told: Callable[[str, Finding], None] | None = None,
) -> dict[str, Any]:
    """Ask, write `out` after every answer, and return the report. An existing report of this machine is carried on.

    `model` holds HiDream-O1's weights, for the question about their text.
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
    checkpoints = weights(model)
    asked = [(name, place) for name, place in questions() if place != "engine" or name in checkpoints]
    for name, place in asked:
        label = f"{name}@{place}"
        left = minutes * 60 - (time.monotonic() - begin)
        if answers.get(label, {}).get("fault") is not None:
            continue
        if left <= 0:
            answers[label] = cache.to_json(Finding(None, Text("not asked: the time was over", "未询问：时间已用完")))
            continue
        if place == "engine":
            request = {"question": name, "model": str(checkpoints[name])}
            finding = runner.converse(request, min(LONGEST_ENGINE, left), field_engine.COMMAND)
            answers[label] = redacted(cache.to_json(finding))
        else:
            finding, answers[label] = ask_operator(name, place, facts, anyway, min(LONGEST, left))
        write(out, report(facts, answers, time.monotonic() - begin))
        if told is not None:
            told(label, finding)
    final = report(facts, answers, time.monotonic() - begin)
    write(out, final)
    return final


def ask_operator(name: str, tower: str, facts: Facts, anyway: bool, seconds: float) -> tuple[Finding, dict[str, Any]]:
    """The finding of a probe or question at a tower's shapes, kept in the cache, and its entry of the report."""
    shapes = shapes_for(tower, facts)
    finding = runner.ask(name, shapes, anyway=anyway, timeout=seconds)
    if name in PROBES:
        cache.store(PROBES[name], facts, shapes, finding)
    return finding, redacted(cache.to_json(finding)) | {"shapes": shapes.to_json()}


def redacted(value: Any) -> Any:
    """The JSON value with names, addresses and keys taken out of every text in it."""
    from ascend_vl.machine.redaction import redact

    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {name: redacted(part) for name, part in value.items()}
    return [redacted(part) for part in value] if isinstance(value, list) else value


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
        "chip_memory_bytes": min((chip.memory_bytes for chip in machine.chips), default=0),
        "settings": cache.settings() if not machine.emulated else {},
        "seconds": round(seconds, 1),
        "answers": answers,
        "not_asked": {name: why for name, why in NOT_ASKED.items() if f"{name}@engine" not in answers},
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
        known_facts = MachineFacts(**value["facts"])
        if not all(isinstance(fact, str | None) for fact in vars(known_facts).values()):
            raise ValueError("facts are texts")
        if not isinstance(value.get("chips", []), list) or not isinstance(value.get("chip_memory_bytes", 0), int):
            raise ValueError("chips")
        for answer in value["answers"].values():
            if cache.from_json(answer).fault not in (True, False, None):
                raise ValueError(f"fault {answer['fault']!r}")
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
