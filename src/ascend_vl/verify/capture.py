"""Record what a target answers to the cases, and every stage on the way that it can show."""

import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ascend_vl import __version__
from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text
from ascend_vl.verify import remote, runs, targets
from ascend_vl.verify.capture_images import save_images
from ascend_vl.verify.cases import Case, file_sha256, read_cases
from ascend_vl.verify.runs import Answer, Run

OnCase = Callable[[int, int], None]
_HIDDEN = "the server does not show it"
_TOWER_STAGES = ("grid", "pixel_values", "tower")


@dataclass(frozen=True)
class Options:
    """How to capture. `repeats` further answers to each request; `forced` gives token ids by case to follow."""

    dtype: str | None = None
    repeats: int = 1
    concurrency: int = 1
    tensors: bool = False
    golden: bool = False
    api_key: str | None = None
    name: str | None = None
    forced: dict[str, tuple[str, list[int]]] | None = None


def capture(target: targets.Target, cases: Path, out: Path, options: Options, on_case: OnCase | None = None) -> Run:
    """Record a RUN at `out`.

    Raises AscendVLError `out-not-empty`, `target-unknown`, `dtype-unknown`, `jsonl-invalid`, `image-*`,
    `server-unreachable`, `server-refused`, `reference-missing`, `reference-failed`, and what `serve` raises.
    """
    targets.check_dtype(options.dtype)
    questions = read_cases(cases)
    require_empty(out)
    if target.kind == "transformers":
        return transformers(Path(target.place), cases, out, options, on_case)
    if target.kind == "server":
        return from_server(remote.Server(target.place, options.api_key), questions, out, options, on_case)
    with targets.engine(Path(target.place), options.dtype) as running:
        server = remote.Server(running.url, running.api_key)
        return from_server(server, questions, out, options, on_case, model=Path(target.place))


def from_server(
    server: remote.Server,
    cases: list[Case],
    out: Path,
    options: Options,
    on_case: OnCase | None = None,
    model: Path | None = None,
) -> Run:
    """Record a server's answers; `model` is its checkpoint when it is ours and can be looked into."""
    status = server.get("/v1/ascend_vl/status") or {}
    hashes = save_images(cases, out)
    normalises = (status.get("api_server") or {}).get("media_connector") == "ascend_vl"
    answers = []
    for number, case in enumerate(cases, 1):
        answer = _one(server, case, out, options, number if model else None)
        if case.images and normalises:
            answer.stages["image_bytes"] = hashes[case.id]
        elif case.images:
            answer.missing["image_bytes"] = "the server does not say how it read the picture"
        answers.append(answer)
        if on_case:
            on_case(number, len(cases))
    if model:
        server.rpc("ascend_vl_capture_stop")
    if options.concurrency > 1:
        for answer, again in zip(answers, server.ask_all(cases, options.concurrency), strict=True):
            answer.repeats.append({"text": again.text, "token_ids": again.token_ids, "concurrent": True})
    info = _server_info(server, status, options, model)
    info["statuses"] = earned(cases, answers)
    runs.write_run(out, info, [case.to_json() for case in cases], answers)
    return runs.read_run(out)


def _one(server: remote.Server, case: Case, out: Path, options: Options, number: int | None) -> Answer:
    """One case; `number` names its tensor file, None when the engine cannot be looked into."""
    if number is not None:
        server.rpc("ascend_vl_capture_start")
    answer, _ = server.ask(case, fresh_images=number is not None)
    if number is not None and case.images:
        directory = out / "tensors" if options.tensors else None
        if directory:
            directory.mkdir(parents=True, exist_ok=True)
        answer.stages |= server.rpc("ascend_vl_capture_take", directory.resolve() if directory else "", f"{number:04d}")
    elif case.images:
        answer.missing |= dict.fromkeys(_TOWER_STAGES, _HIDDEN)
    if not case.images:
        answer.missing |= dict.fromkeys(("image_bytes", *_TOWER_STAGES), "the case has no picture")
    for _ in range(options.repeats):
        again, _ = server.ask(case)
        answer.repeats.append({"text": again.text, "token_ids": again.token_ids})
    if options.forced and case.id in options.forced:
        force(server, case, answer, *options.forced[case.id])
    return answer


def force(server: remote.Server, case: Case, answer: Answer, text: str, token_ids: list[int]) -> None:
    """Add what the server says at every position of another side's answer."""
    listed = server.forced(case, text, token_ids) if token_ids else "the base's answer is empty"
    if isinstance(listed, str):
        answer.missing["forced"] = listed
    else:
        answer.stages["forced"] = {"token_ids": token_ids, "logprobs": listed}


def _server_info(server: remote.Server, status: dict[str, Any], options: Options, model: Path | None) -> dict[str, Any]:
    versions = dict(status.get("versions") or {})
    if not versions and (said := server.get("/version")):
        versions = {"vllm": str(said.get("version"))}
    dtype = (status.get("model") or {}).get("dtype") or options.dtype
    emulated = status_emulated(status)
    return {
        **_common(options, f"{server.url} ({server.model})" if not model else str(model), dtype),
        "kind": "engine" if model else "server",
        "model": _model(model) if model else {"served_as": server.model},
        "dtype": dtype,
        "versions": versions,
        "status": status or None,
        "sampling": server.sampling,
        "emulated": emulated,
    }


def status_emulated(status: dict[str, Any]) -> bool:
    """Whether the server says, or its versions show, that its NPU is the emulator."""
    text = json.dumps(status).lower()
    return bool(status.get("emulated")) or "emulat" in text


def _common(options: Options, target: str, dtype: str | None) -> dict[str, Any]:
    recorded = datetime.now(timezone.utc).isoformat(timespec="seconds")
    name = options.name or f"{target} {dtype or ''}".strip()
    return {"name": name, "target": target, "ascend_vl": __version__, "recorded": recorded}


def _model(path: Path) -> dict[str, Any]:
    """A checkpoint by the hashes of its small files and the sizes of its shards."""
    small = [p for p in sorted(path.iterdir()) if p.is_file() and p.suffix in (".json", ".jinja", ".txt")]
    return {
        "directory": path.resolve().name,
        "files": {p.name: file_sha256(p) for p in small if p.stat().st_size < 64 << 20},
        "weights": {p.name: p.stat().st_size for p in sorted(path.glob("*.safetensors"))},
    }


def earned(cases: list[Case], answers: list[Answer]) -> list[str]:
    """The status words that these answers earn, and no more."""
    words = ["installed", "started"]
    said = {
        case.id: bool(answer.text.strip()) or bool(answer.token_ids)
        for case, answer in zip(cases, answers, strict=True)
    }
    if any(said[case.id] for case in cases if not case.images):
        words.append("text answered")
    if any(said[case.id] for case in cases if case.images):
        words.append("image answered")
    if answers and all(answer.repeats for answer in answers):
        words.append("repeated")
    if any(again.get("concurrent") for answer in answers for again in answer.repeats):
        words.append("concurrent")
    return words


def transformers(model: Path, cases: Path, out: Path, options: Options, on_case: OnCase | None = None) -> Run:
    """Record the reference, in a child process that is gone when this returns."""
    for package in ("torch", "transformers"):
        if not importlib.util.find_spec(package):
            raise _missing_reference(package)
    questions = read_cases(cases)
    save_images(questions, out)
    spec = {
        "model": str(model.resolve()),
        "dtype": options.dtype or "float32",
        "cases": str(cases.resolve()),
        "out": str(out.resolve()),
        "repeats": options.repeats,
        "tensors": options.tensors,
        "golden": options.golden,
        "forced": {name: ids for name, (_, ids) in (options.forced or {}).items()},
        "info": {
            **_common(options, f"transformers:{model}", options.dtype or "float32"),
            "kind": "transformers",
            "model": _model(model),
            "emulated": False,
        },
    }
    _run_child(spec, on_case)
    run = runs.read_run(out)
    run.info["statuses"] = earned(questions, list(run.answers.values()))
    runs.write_run(out, run.info, list(run.cases.values()), list(run.answers.values()))
    return run


def _run_child(spec: dict[str, Any], on_case: OnCase | None) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "spec.json"
        runs.write_json(path, spec)
        command = [sys.executable, "-m", "ascend_vl.verify.reference", str(path)]
        with (Path(scratch) / "stderr").open("w+") as errors:
            child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
            try:
                assert child.stdout
                for line in child.stdout:
                    if line.startswith('{"done"') and on_case:
                        progress = json.loads(line)
                        on_case(progress["done"], progress["of"])
                code = child.wait()
            finally:
                child.kill()
                child.wait()
            errors.seek(0)
            said = [line for line in errors.read().splitlines() if line.strip()]
    if code:
        last = said[-1] if said else f"exit code {code}"
        raise AscendVLError(
            "reference-failed",
            Text("Transformers could not answer the cases.", "Transformers 无法回答这些用例。"),
            Text(last, last),
            Text(
                "inspect names what is wrong with a checkpoint; transformers must know Qwen3-VL (4.57 or later).",
                "用 inspect 查看权重目录的问题；transformers 需支持 Qwen3-VL（4.57 及以上）。",
            ),
        )


def _missing_reference(package: str) -> AscendVLError:
    return AscendVLError(
        "reference-missing",
        Text("The reference cannot run here.", "本环境无法运行参考实现。"),
        Text(f"{package} is not installed.", f"未安装 {package}。"),
        Text(
            "make setup in a clone of ascend-vl, or capture the reference elsewhere and give it as --base RUN.",
            "在 ascend-vl 的克隆中 make setup，或在别处记录参考结果并用 --base RUN 给出。",
        ),
    )


def require_empty(out: Path) -> None:
    """Make `out`. Raises AscendVLError `out-not-empty` unless it is absent or an empty directory, else OSError."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise AscendVLError(
            "out-not-empty",
            Text(f"{out} is not empty.", f"{out} 不为空。"),
            Text("A record is never mixed with another.", "记录不会与其他记录混在一起。"),
            Text("Name a new directory.", "请指定一个新目录。"),
        )
    out.mkdir(parents=True, exist_ok=True)
