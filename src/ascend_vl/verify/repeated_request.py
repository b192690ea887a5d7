"""What the stages found when they sent an identical picture request again, kept for the plans of this machine."""

from typing import TYPE_CHECKING

from ascend_vl.language import Text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ascend_vl.plan import Plan
    from ascend_vl.verify.runs import Run

FAILED = Text(
    "verify: an identical second picture request failed or was answered otherwise here",
    "verify：本机上完全相同的第二次图片请求失败或回答不同",
)
PASSED = Text(
    "verify: an identical second picture request was answered like the first here",
    "verify：本机上完全相同的第二次图片请求回答一致",
)


def keep(plan: "Plan", failed: bool) -> None:
    """Record it by `probes.record_repeat` where it decides: on a real or emulated chip, with prefix caching on."""
    machine = plan.machine
    if machine.described or not machine.chips or plan.value("enable_prefix_caching") is False:
        return
    from ascend_vl import probes
    from ascend_vl.plan import adapting

    shapes = adapting.shapes_of(plan.model, str(plan.value("dtype")), plan.tensor_parallel_size)
    probes.record_repeat(adapting.facts_of(machine), shapes, failed, FAILED if failed else PASSED)


def differs(run: "Run", cases: "Iterable[str]") -> bool:
    """Whether any of `cases` was answered otherwise when it was asked again by itself (not beside others)."""
    answers = [run.answers[case] for case in cases if case in run.answers]
    alone = ((answer.text, again) for answer in answers for again in answer.repeats if not again.get("concurrent"))
    return any(text != again["text"] for text, again in alone)
