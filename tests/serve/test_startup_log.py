import pytest

from ascend_vl.serve.startup_log import Progress, StartupLog, tail


def test_progress_bars_written_over_each_other_are_read() -> None:
    seen: list[tuple[str, int, int]] = []
    log = StartupLog(lambda progress: seen.append((progress.stage, progress.shard, progress.shards)))
    log.feed(
        "Loading safetensors checkpoint shards:  12% Completed | 1/8 [00:05<00:35]\rLoading safetensors checkpoint"
    )
    log.feed(" shards:  25% Completed | 2/8 [00:10<00:30]\r")
    assert ("weights", 1, 8) in seen


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("(Worker pid=1) ERROR 11-30 17:51:30 [x.py:1] ValueError: k_proj is missing", "ValueError: k_proj is missing"),
        ("torch.OutOfMemoryError: NPU out of memory", "OutOfMemoryError: NPU out of memory"),
        ("RuntimeError: Engine core initialization failed. See root cause above.", None),
        ("INFO no error here: all good", None),
    ],
)
def test_the_first_cause_is_told_from_its_aftermath(line: str, cause: str | None) -> None:
    log = StartupLog()
    log.feed(line + "\n")
    assert log.error == cause
    log.feed("ValueError: something later\n")
    assert log.error == (cause or "ValueError: something later")


def test_compile_and_capture_seconds_add_up() -> None:
    log = StartupLog()
    log.feed("torch.compile takes 4.50 s in total\nGraph capturing finished in 2 secs, took 0.10 GiB\n")
    assert log.progress.compile_seconds == 6.5


def test_a_stage_is_entered_once() -> None:
    entered: list[str] = []

    def on_stage(progress: Progress) -> None:
        entered.append(progress.stage)

    log = StartupLog(on_stage)
    for _ in range(3):
        log.feed("Loading weights took 1.00 seconds\n")
    assert entered == ["warmup"]


def test_tail_drops_prefixes_and_blank_lines() -> None:
    assert tail("a\n\n(Worker pid=1) INFO 11-30 17:51:28 [m.py:6] b\n") == "a\nb"
