import io
from pathlib import Path

from rich.console import Console

from ascend_vl.serve.display import shard_bytes, starting
from ascend_vl.serve.startup_log import StartupLog

LOG = (
    "Starting to load model x\n",
    "Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:00<00:00]\n",
    "Loading weights took 0.50 seconds\n",
)


def shown(folder: Path, terminal: bool) -> str:
    """What a start of a two-shard checkpoint (3 MB and 1 MB) looks like."""
    for number, size in ((1, 3_000_000), (2, 1_000_000)):
        (folder / f"model-0000{number}-of-00002.safetensors").write_bytes(b"\0" * size)
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=120, color_system=None)
    with starting(folder, console) as on_stage:
        log = StartupLog(on_stage)
        on_stage(log.progress)
        for line in LOG:
            log.feed(line)
        log.enter("ready")
        console.print("after")
    return out.getvalue()


def test_a_terminal_sees_shards_bytes_and_rate(tmp_path: Path) -> None:
    text = shown(tmp_path, terminal=True)
    assert "1/2  3.0 MB / 4.0 MB" in text and "/s" in text
    assert text.rstrip().endswith("after")


def test_elsewhere_a_line_a_stage(tmp_path: Path) -> None:
    lines = shown(tmp_path, terminal=False).split("\n")
    assert len([line for line in lines if line.strip()]) == 5


def test_what_is_no_directory_has_no_shards(tmp_path: Path) -> None:
    assert shard_bytes("org/name") == []
    (tmp_path / "model.safetensors").write_bytes(b"12")
    assert shard_bytes(tmp_path) == [2]
