"""vLLM's start-up, read from its log: which stage it is in, how far the weights are, what went wrong."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

Stage = Literal["start", "weights", "warmup", "ready"]

_SHARDS = re.compile(r"Loading safetensors checkpoint shards.*?(\d+)\s*/\s*(\d+)\s*\[")
_WEIGHTS_START = re.compile(r"Starting to load model")
_WEIGHTS_DONE = re.compile(r"Loading (?:model )?weights took ([\d.]+)")
_WARM_DONE = re.compile(r"init engine \(profile.*?took ([\d.]+)")
_COMPILED = re.compile(r"torch\.compile (?:takes|took) ([\d.]+)|Graph capturing finished in ([\d.]+)")
_KV_TOKENS = re.compile(r"KV cache size: ([\d,]+) tokens")
_ERROR = re.compile(r"(?:^|[\s\]])((?:[\w.]*\.)?[A-Z]\w*(?:Error|Exception|Interrupt)): (.+)$")
# What vLLM says after the cause has been said.
_AFTERMATH = (
    "Engine core initialization failed",
    "Engine core proc",
    "WorkerProc initialization failed",
    "See root cause",
)
_PREFIX = re.compile(r"^\(.*?pid=\d+\)\s*|^(?:ERROR|WARNING|INFO) \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\]\s*")


@dataclass
class Progress:
    """Where a start stands. `shard` of `shards` are read; seconds are vLLM's own figures, None until it says them."""

    stage: Stage = "start"
    shard: int = 0
    shards: int = 0
    load_seconds: float | None = None
    warmup_seconds: float | None = None
    compile_seconds: float | None = None
    kv_tokens: int | None = None
    began: dict[str, float] = field(default_factory=lambda: {"start": time.monotonic()})


OnStage = Callable[[Progress], None]


class StartupLog:
    """Feed it the log's lines; `progress` is what they said, `error` the first cause named in them."""

    def __init__(self, on_stage: OnStage | None = None) -> None:
        self.progress = Progress()
        self.error: str | None = None
        self._on_stage = on_stage or (lambda progress: None)

    def feed(self, text: str) -> None:
        """Take lines; progress bars rewrite theirs with carriage returns."""
        for line in re.split(r"[\r\n]+", text):
            self._line(line)

    def enter(self, stage: Stage) -> None:
        """The start is in this stage now."""
        if self.progress.stage != stage:
            self.progress.stage = stage
            self.progress.began[stage] = time.monotonic()
            self._on_stage(self.progress)

    def _line(self, line: str) -> None:
        progress = self.progress
        if found := _SHARDS.search(line):
            self.enter("weights")
            progress.shard, progress.shards = int(found[1]), int(found[2])
            self._on_stage(progress)
        elif _WEIGHTS_START.search(line):
            self.enter("weights")
        elif found := _WEIGHTS_DONE.search(line):
            progress.load_seconds = float(found[1])
            progress.shard = progress.shards
            self.enter("warmup")
        elif found := _COMPILED.search(line):
            progress.compile_seconds = (progress.compile_seconds or 0.0) + float(found[1] or found[2])
        elif found := _KV_TOKENS.search(line):
            progress.kv_tokens = int(found[1].replace(",", ""))
        elif found := _WARM_DONE.search(line):
            progress.warmup_seconds = float(found[1])
            self.enter("warmup")
        elif self.error is None and (found := _ERROR.search(line)) and not any(word in line for word in _AFTERMATH):
            self.error = f"{found[1].rpartition('.')[2]}: {found[2].strip()}"


def tail(text: str, lines: int = 12) -> str:
    """The last lines of a log without vLLM's prefixes."""
    kept = [line for line in re.split(r"[\r\n]+", text) if line.strip()]
    return "\n".join(_PREFIX.sub("", _PREFIX.sub("", line)) for line in kept[-lines:])
