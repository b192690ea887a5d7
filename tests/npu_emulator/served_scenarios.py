"""Which models are served on which emulated chips, how, and what each is asked."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import served_checks as checks
import tiny_checkpoint
import tiny_variants
import torch
from served import ROOT, NotReady, Reference, Served, picture, serving

DEMO = ROOT / "src" / "ascend_vl" / "demo" / "checkpoint"
HERE = Path(__file__).parent
PIECEWISE = '{"cudagraph_mode": "PIECEWISE", "cudagraph_capture_sizes": [1, 2, 4]}'
# (name of the check, what it does): a test calls it, the script prints what it returns.
Check = Callable[[str, Callable[[], Any]], None]


class Models:
    """The checkpoints, each made in `scratch` when first needed, and Transformers on them."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch

    @functools.cached_property
    def peak(self) -> Path:
        return tiny_checkpoint.make(self.scratch / "peak")

    @functools.cached_property
    def large(self) -> Path:
        made = self.scratch / "large"
        return made if made.exists() else tiny_variants.large_pictures(self.peak, made)

    @functools.cached_property
    def moe(self) -> Path:
        made = self.scratch / "moe"
        return made if made.exists() else tiny_variants.moe(self.peak, made)

    @functools.cached_property
    def w8a8(self) -> tuple[Path, Path]:
        """The quantised checkpoint, and the one with the same weights rounded but in floating point."""
        made = self.scratch / "quantised"
        return (made / "w8a8", made / "rounded") if made.exists() else tiny_variants.w8a8(self.peak, made)

    @functools.cached_property
    def cache(self) -> str:
        """Where the answers of probes are kept, so that scenarios on the same machine ask once."""
        return str(self.scratch / "cache")

    def serving(self, version: str, chip: str, model: Path, *options: str, chips: int = 1, **variables: str) -> Any:
        """`served.serving` with the chip's default faults; logs and answers of probes stay in the scratch folder."""
        kept = {"ASCEND_VL_CACHE": self.cache, "XDG_STATE_HOME": str(self.scratch / "state")}
        return serving(version, chip, model, *options, chips=chips, faults="default", **(kept | variables))


def in_force(served: Served, chips: int, *expected: str) -> list[str]:
    """Exactly these adaptations are in force in every worker."""
    found = [checks.in_force(states) for states in checks.adaptations(served, chips)]
    assert found == [set(expected)] * chips, found
    return sorted(expected)


def twin(version: str, *active: str) -> Callable[[Models, Check], None]:
    """Qwen3-VL, float16, eager, tensor parallel on two 310P chips."""

    def run(models: Models, check: Check) -> None:
        options = ("-tp", "2", "--max-model-len", "1024")
        with models.serving(version, "310P3", models.peak, *options, chips=2) as served:
            assert "--enforce-eager" in served.ready["command"] and "float16" in served.ready["command"]
            check("adaptations", lambda: in_force(served, 2, *active))
            check("answers", lambda: checks.answers(served, Reference(models.peak)))
            check("video", lambda: checks.video_refused(served))

    return run


def broken_worker(models: Models, check: Check) -> None:
    """The plugin does not register in the worker of rank 1: not ready, and the error says where."""

    def refused() -> Any:
        variables = {"PYTHONPATH": str(HERE / "broken_plugin")}
        options = ("-tp", "2", "--max-model-len", "512")
        try:
            with models.serving("0.18.0", "310P3", models.peak, *options, chips=2, **variables):
                raise AssertionError("it said it was ready")
        except NotReady as error:
            assert error.error["code"] == "plugin-inactive" and "[1]" in error.error["why"], error
            return error.error

    check("not ready", refused)


def large(version: str) -> Callable[[Models, Check], None]:
    """Pictures of 1280x720 and many clients."""

    def run(models: Models, check: Check) -> None:
        options = ("--max-model-len", "16384", "--max-num-seqs", "4", "--", "--max-num-batched-tokens", "4096")
        with models.serving(version, "310P3", models.large, *options) as served:
            check("conformance", lambda: checks.conformance(served))
            check("clients", lambda: checks.concurrent(served))
            check("ramp", lambda: checks.ramp(served))

    return run


def long(version: str) -> Callable[[Models, Check], None]:
    """A tool call, and 16384 tokens with pictures of 1280x720."""

    def run(models: Models, check: Check) -> None:
        options = ("--max-model-len", "16384", "--", "--max-num-batched-tokens", "4096")
        options += ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
        with models.serving(version, "310P3", models.large, *options) as served:
            check("tool call", lambda: checks.tool_call(served))
            check("16384 tokens", lambda: checks.long_prompt(served, Reference(models.large, attention="sdpa")))

    return run


def hidream(*options: str, graphs: bool) -> Callable[[Models, Check], None]:
    """HiDream-O1 (the demo checkpoint) on a 910B."""

    def run(models: Models, check: Check) -> None:
        with models.serving("0.18.0", "910B3", DEMO, "--max-model-len", "1024", *options) as served:
            questions = {"What is in the picture?": [picture(0, 128, 128)], "1+1=?": []}
            reference = Reference(DEMO, torch.bfloat16)
            check("adaptations", lambda: in_force(served, 1))
            check("answers", lambda: checks.answers(served, reference, 0.5, questions))
            if graphs:
                check("graphs", lambda: checks.graphs_replayed(served))

    return run


def clip(models: Models, check: Check) -> None:
    """A short clip where the user allowed video."""
    allowed = '{"image": 2, "video": {"count": 1, "num_frames": 4, "width": 64, "height": 64}}'
    options = ("--max-model-len", "1024", "--", "--limit-mm-per-prompt", allowed)
    with models.serving("0.18.0", "310P3", models.peak, *options) as served:
        check("clip", lambda: checks.video_answered(served))


def experts(version: str, *active: str) -> Callable[[Models, Check], None]:
    """Qwen3-VL with experts, by our class."""

    def run(models: Models, check: Check) -> None:
        with models.serving(version, "310P3", models.moe, "--max-model-len", "1024") as served:
            check("adaptations", lambda: in_force(served, 1, *active))
            check("answers", lambda: checks.answers(served, Reference(models.moe)))

    return run


def quantised(version: str, *active: str) -> Callable[[Models, Check], None]:
    """ModelSlim W8A8: the tower as in the float checkpoint, answers near those of the rounded weights."""

    def run(models: Models, check: Check) -> None:
        stored, rounded = models.w8a8
        with models.serving(version, "310P3", stored, "--max-model-len", "1024") as served:
            check("adaptations", lambda: in_force(served, 1, *active))
            check("answers", lambda: checks.near(served, Reference(rounded)))

    return run


SCENARIOS: dict[str, Callable[[Models, Check], None]] = {
    "0.18.0 310P3 x2": twin("0.18.0", "float16"),
    "0.23.0.post1 310P3 x2": twin("0.23.0.post1", "float16", "embedding-merge", "vision-exact-kernel"),
    "0.26.0rc1 310P3 x2": twin("0.26.0rc1", "float16", "embedding-merge", "vision-exact-kernel"),
    "0.18.0 310P3 x2, plugin broken in one worker": broken_worker,
    "0.18.0 310P3 large": large("0.18.0"),
    "0.23.0.post1 310P3 large": large("0.23.0.post1"),
    "0.18.0 310P3 tool call and 16384 tokens": long("0.18.0"),
    "0.18.0 910B3 HiDream-O1 eager": hidream("--", "--enforce-eager", graphs=False),
    "0.18.0 910B3 HiDream-O1 PIECEWISE": hidream("--", "--compilation-config", PIECEWISE, graphs=True),
    "0.18.0 310P3 clip": clip,
    "0.18.0 310P3 experts": experts("0.18.0", "float16"),
    "0.23.0.post1 310P3 experts": experts("0.23.0.post1", "float16", "embedding-merge", "vision-exact-kernel"),
    "0.18.0 310P3 W8A8": quantised("0.18.0", "float16"),
    "0.23.0.post1 310P3 W8A8": quantised("0.23.0.post1", "float16", "embedding-merge", "vision-exact-kernel"),
}


def run(name: str, models: Models, check: Callable[[str, str, Callable[[], Any]], None]) -> None:
    """Run one scenario; `check(scenario, name, function)` runs or prints each of its checks."""
    SCENARIOS[name](models, lambda what, function: check(name, what, function))
