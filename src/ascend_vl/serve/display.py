"""A start on the screen: a bar or a line a stage, on stderr."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import TransferSpeedColumn as RateColumn

from ascend_vl.language import Text
from ascend_vl.serve import startup_log

TITLES = {
    "start": Text("starting vLLM", "启动 vLLM"),
    "weights": Text("weights", "加载权重"),
    "warmup": Text("warm-up", "预热"),
    "ready": Text("ready", "就绪"),
}


def shard_bytes(model: str | Path) -> list[int]:
    """Bytes of a local checkpoint's shards, in the order vLLM reads them; empty for what is not a directory."""
    path = Path(model)
    return [file.stat().st_size for file in sorted(path.glob("*.safetensors"))] if path.is_dir() else []


@contextlib.contextmanager
def starting(model: str | Path, console: Console) -> Iterator[startup_log.OnStage]:
    """Yields the `on_stage` to give to serve.process; shows what it hears until the block ends."""
    bars = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[shards]}"),
        DownloadColumn(binary_units=True),
        RateColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=False,
        disable=not console.is_terminal,
    )
    with bars:
        yield _Stages(bars, shard_bytes(model), console)


class _Stages:
    def __init__(self, bars: Progress, sizes: list[int], console: Console) -> None:
        self._bars, self._sizes, self._console = bars, sizes, console
        self._tasks: dict[str, int] = {}
        self._told: set[str] = set()

    def __call__(self, progress: startup_log.Progress) -> None:
        if self._console.is_terminal:
            self._draw(progress)
        elif progress.stage not in self._told:
            self._told.add(progress.stage)
            self._console.print(f"{TITLES[progress.stage]} ...")

    def _draw(self, progress: startup_log.Progress) -> None:
        stage = progress.stage
        if stage not in self._tasks:
            for done in self._tasks.values():
                self._bars.update(done, total=1, completed=1) if done != self._tasks.get("weights") else None  # type: ignore[arg-type]
                self._bars.stop_task(done)  # type: ignore[arg-type]
            total = sum(self._sizes) if stage == "weights" else None
            self._tasks[stage] = self._bars.add_task(str(TITLES[stage]), total=total or None, shards="")
        if "weights" in self._tasks:
            shards = f"{progress.shard}/{progress.shards}" if progress.shards else ""
            read = sum(self._sizes[: progress.shard]) if progress.shards == len(self._sizes) else 0
            self._bars.update(self._tasks["weights"], completed=read, shards=shards)  # type: ignore[arg-type]
