"""The staged verification: A dummy weights, B real weights, C against the reference, and whatever joins the registry.

A stage is a function from the Session to its checks. The first failing check ends its stage, the first failing stage
ends the verification; what was not run is said.
"""

import contextlib
import importlib
import importlib.util
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text
from ascend_vl.verify.requirements import Requirement

SCHEMA = 1


@dataclass
class Check:
    """One thing looked at: `status` is passed, failed or noted (no judgement); the detail stands in both languages."""

    name: str
    status: str
    detail: str = ""
    detail_zh: str = ""
    values: dict[str, Any] = field(default_factory=dict)


@dataclass
class StageResult:
    """A stage's outcome: passed, failed or not run; `proves` says what a pass shows, and no more."""

    key: str
    title: Text
    proves: Text
    status: str = "not run"
    why_not: str | None = None
    checks: list[Check] = field(default_factory=list)
    seconds: float = 0.0


class StageFailed(Exception):
    """Ends a stage: its last check failed."""


@dataclass
class Session:
    """What the stages share: the wish, and the one engine that B and later stages use."""

    model: Path
    cases: Path
    out: Path
    requirements: list[Requirement]
    dtype: str | None = None
    base: Path | None = None
    progress: Callable[[str], None] = lambda text: None
    statuses: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    emulated: bool = False
    checks: list[Check] = field(default_factory=list)
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _engine: Any = None
    _stamp: dict[str, tuple[int, int]] | None = None

    def check(self, name: str, good: bool | None, detail: str | Text = "", **values: Any) -> None:
        """Record a check (None: only noted). Raises StageFailed when it is not good."""
        status = "noted" if good is None else "passed" if good else "failed"
        both = detail if isinstance(detail, Text) else Text(detail, detail)
        self.checks.append(Check(name, status, both.en, both.zh, values))
        if status == "failed":
            raise StageFailed(name)

    def earn(self, *words: str) -> None:
        """Add status words, once each."""
        self.statuses += [word for word in words if word not in self.statuses]

    def engine(self) -> Any:
        """The running server with the real weights; started once, stopped when the verification ends."""
        if self._engine is None:
            from ascend_vl.verify import targets

            self.progress(str(Text("starting the engine with the real weights", "正在用真实权重启动引擎")))
            self._stamp = stamp(self.model)
            self._engine = self._stack.enter_context(targets.engine(self.model, self.dtype))
        return self._engine

    def require_unchanged(self) -> None:
        """Raises AscendVLError `checkpoint-changed` when files changed since the engine read them."""
        if self._stamp is not None and stamp(self.model) != self._stamp:
            raise AscendVLError(
                "checkpoint-changed",
                Text(f"{self.model} changed during the verification.", f"{self.model} 在验证过程中被修改。"),
                Text("The two sides did not read the same weights.", "两侧读取的权重不同。"),
                Text("Verify again when nobody writes to it.", "请在无人写入时重新验证。"),
            )

    def use(self, server: Any) -> None:
        """Have the stages use this running server instead of starting one; whoever started it stops it."""
        self._engine = server
        self._stamp = stamp(self.model)

    def close(self) -> None:
        """Stop the engine."""
        self._stack.close()
        self._engine = None


def stamp(model: Path) -> dict[str, tuple[int, int]]:
    """Size and time of change of every file of a checkpoint."""
    return {path.name: (path.stat().st_size, path.stat().st_mtime_ns) for path in model.iterdir() if path.is_file()}


@dataclass(frozen=True)
class Stage:
    """A registered stage; `module` has `run(session)` and is imported only when the stage runs."""

    key: str
    module: str
    title: Text
    proves: Text


REGISTRY: dict[str, Stage] = {}


def register(stage: Stage) -> None:
    """Add a stage; the order of registration is the order of running."""
    REGISTRY[stage.key] = stage


register(
    Stage(
        "A",
        "ascend_vl.verify.stage_dummy",
        Text("dummy weights", "虚拟权重"),
        Text("the engine starts, compiles and warms up; nothing about answers", "引擎可以启动、编译和预热；与回答无关"),
    )
)
register(
    Stage(
        "B",
        "ascend_vl.verify.stage_weights",
        Text("real weights", "真实权重"),
        Text("every tensor is loaded and it answers text and pictures", "全部张量已加载，可回答文本与图片"),
    )
)
register(
    Stage(
        "C",
        "ascend_vl.verify.stage_reference",
        Text("against Transformers, same checkpoint", "与同一权重的 Transformers 对比"),
        Text("its answers are the reference's, stage by stage", "回答与参考实现逐阶段一致"),
    )
)
register(
    Stage(
        "D",
        "ascend_vl.verify.stage_drawing",
        Text("drawing", "绘图"),
        Text("it draws what the reference draws", "绘图结果与参考实现一致"),
    )
)


def available() -> list[str]:
    """Keys of the stages that this installation has."""
    return [key for key, stage in REGISTRY.items() if importlib.util.find_spec(stage.module)]


def chosen(text: str) -> list[str]:
    """The stages of `--stages A,B,C`, in running order. Raises AscendVLError `stage-unknown`."""
    wanted = [key.strip().upper() for key in text.split(",") if key.strip()]
    unknown = [key for key in wanted if key not in available()]
    if unknown or not wanted:
        raise AscendVLError(
            "stage-unknown",
            Text(f"There is no stage {', '.join(unknown) or text!r}.", f"没有阶段 {'、'.join(unknown) or text!r}。"),
            Text(f"There are: {', '.join(available())}.", f"可用：{'、'.join(available())}。"),
            Text("For example --stages A,B,C", "例如 --stages A,B,C"),
        )
    return [key for key in REGISTRY if key in wanted]


def run(session: Session, keys: list[str]) -> list[StageResult]:
    """Run the stages in order, stopping at the first that fails; one result for every registered stage."""
    results = [StageResult(stage.key, stage.title, stage.proves) for stage in REGISTRY.values()]
    failed: str | None = None
    try:
        for result in results:
            if result.key not in keys:
                result.why_not = "not asked for" if result.key in available() else "not in this installation"
            elif failed:
                result.why_not = f"stage {failed} failed"
            else:
                _run_one(session, result)
                failed = result.key if result.status == "failed" else None
    finally:
        session.close()
    return results


def _run_one(session: Session, result: StageResult) -> None:
    session.progress(f"{Text('stage', '阶段')} {result.key}: {result.title}")
    session.checks = result.checks
    started = time.monotonic()
    with _judged(result):
        importlib.import_module(REGISTRY[result.key].module).run(session)
    result.seconds = round(time.monotonic() - started, 2)


# Nothing was found out about the model: these end the command with exit code 2.
NO_VERDICT = (
    "checkpoint-changed",
    "engine-missing",
    "reference-missing",
    "embedder-missing",
    "port-in-use",
    "jsonl-invalid",
    "file-unreadable",
    "image-missing",
    "key-fields-invalid",
)


@contextlib.contextmanager
def _judged(result: StageResult) -> Iterator[None]:
    """A failing check, or an error that is about the model, fails the stage; any other error goes on up."""
    try:
        yield
    except StageFailed:
        result.status = "failed"
    except AscendVLError as error:
        if error.code in NO_VERDICT:
            raise
        result.status = "failed"
        english, chinese = ([part[i] for part in (error.what, error.why, error.do)] for i in (0, 1))
        result.checks.append(Check(error.code, "failed", " ".join(english), "".join(chinese)))
    else:
        result.status = "passed"


def to_json(results: list[StageResult]) -> list[dict[str, Any]]:
    """Results as plain JSON; titles in both languages."""
    return [{**asdict(r), "title": r.title._asdict(), "proves": r.proves._asdict()} for r in results]
