"""A start on the screen, on stderr: a bar a stage on a terminal, a line a stage elsewhere."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from ascend_vl.language import Text
from ascend_vl.serve import startup_log

TITLES = {
    "start": Text("starting vLLM", "启动 vLLM"),
    "weights": Text("weights", "加载权重"),
    "warmup": Text("warm-up", "预热"),
    "ready": Text("answered a token", "已生成词元"),
}


def shard_bytes(model: str | Path) -> list[int]:
    """Bytes of a local checkpoint's shards, in the order vLLM reads them; empty for what is not a directory."""
    path = Path(model)
    return [file.stat().st_size for file in sorted(path.glob("*.safetensors"))] if path.is_dir() else []


@contextlib.contextmanager
def starting(model: str | Path, console: Console) -> Iterator[startup_log.OnStage]:
    """Yields the `on_stage` to give to serve.process. The bars stop moving at stage "ready", or when the block ends."""
    bars = Progress(
        SpinnerColumn(),
        TextColumn("{task.description:<14}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    )
    with bars:
        yield _Stages(bars, shard_bytes(model), console)


class _Stages:
    def __init__(self, bars: Progress, sizes: list[int], console: Console) -> None:
        self._bars, self._sizes, self._console = bars, sizes, console
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, progress: startup_log.Progress) -> None:
        new = progress.stage not in self._tasks
        if new:
            for task in self._tasks.values():
                self._bars.update(task, total=1, completed=1)
            self._tasks[progress.stage] = self._bars.add_task(str(TITLES[progress.stage]), total=None, note="")
            if not self._console.is_terminal:
                self._console.print(str(TITLES[progress.stage]))
        if progress.stage == "weights" and progress.shards:
            share = progress.shard / progress.shards
            self._bars.update(self._tasks["weights"], total=1, completed=share, note=self._shards(progress))
        if progress.stage == "ready":
            self._bars.update(self._tasks["ready"], total=1, completed=1)
            self._bars.stop()

    def _shards(self, progress: startup_log.Progress) -> str:
        """Shard i/n, bytes of all bytes, bytes a second."""
        text = f"{progress.shard}/{progress.shards}"
        if progress.shards != len(self._sizes):
            return text
        read = sum(self._sizes[: progress.shard])
        rate = read / max(time.monotonic() - progress.began["weights"], 0.001)
        return f"{text}  {decimal(read)} / {decimal(sum(self._sizes))}  {decimal(int(rate))}/s"
