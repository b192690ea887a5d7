"""Four questions to the vision attention operators: head width, empty sequences, borders, precision."""

import functools
from typing import TYPE_CHECKING

from ascend_vl.adaptations.record import Finding
from ascend_vl.language import Text
from ascend_vl.probes.record import Note, Probe
from ascend_vl.probes.shapes import Shapes

if TYPE_CHECKING:
    import torch

    from ascend_vl.probes.judge import Verdict

# How far the same operator may be from itself when it gets pictures together instead of one by one.
TOGETHER = 1e-2
WIDTHS = (64, 80, 96, 112, 128, 192)
# Heads do not meet in attention: of an operator's result for all of them these are compared with the references, which
# a CPU takes most of a probe's time to compute (float16 above all).
JUDGED = (0, -1)


def stock_operator(chip: str, vllm_ascend: str | None) -> str:
    """The operator that the installed vllm-ascend calls for vision attention (facts of each version's source)."""
    from ascend_vl.adaptations.decide import at_least
    from ascend_vl.adaptations.seams.attention_operators import offered

    if chip.startswith("310P"):
        newer = at_least(vllm_ascend, "0.23.0") is not False
        return "unpad-approximate" if newer and offered("unpad-approximate") else "unpad"
    if at_least(vllm_ascend, "0.23.0") is not False:
        return "fused-infer"
    return "fusion" if at_least(vllm_ascend, "0.12.0") else "unpad"


def stock_width(vllm_ascend: str | None, head_size: int) -> int:
    """The width to which the installed vllm-ascend pads heads."""
    from ascend_vl.adaptations.decide import at_least

    pads = at_least(vllm_ascend, "0.15.0") is not False
    return 128 if pads and 64 < head_size < 128 else head_size


def installed() -> str | None:
    """The vllm-ascend version of this process, None without one."""
    from ascend_vl.adaptations.process_facts import process_facts

    return process_facts().vllm_ascend


class Question:
    """Peaked heads of some pictures, and the answers of operators to them."""

    def __init__(self, shapes: Shapes, pictures: tuple[int, ...]) -> None:
        import torch

        from ascend_vl.adaptations.seams.lengths import Lengths
        from ascend_vl.probes import device, references

        self.npu, self.dtype, rows = device.prepared(), getattr(torch, shapes.dtype), sum(pictures)
        self.pictures, self.scale = pictures, shapes.head_size**-0.5
        self.heads = references.peaked_heads(rows, shapes.vision_heads, shapes.head_size, self.dtype)
        self.lengths = Lengths.of(pictures, rows)

    def ask(self, operator: str, width: int) -> "torch.Tensor":
        """All pictures in one call, on the CPU."""
        from ascend_vl.adaptations.seams.attention_operators import padded
        from ascend_vl.probes import device

        q, k, v = (t.to(self.npu) for t in self.heads)
        return device.fetched(padded(operator, q, k, v, self.lengths, self.scale, width))

    @functools.cached_property
    def wanted(self) -> "tuple[torch.Tensor, torch.Tensor]":
        """The judged heads in float64 and by plain PyTorch in the dtype under test; computed once."""
        import torch

        from ascend_vl.probes import references

        q, k, v = (t[:, JUDGED] for t in self.heads)
        golden = references.packed_attention(q, k, v, self.pictures, self.scale, torch.float64)
        return golden, references.packed_attention(q, k, v, self.pictures, self.scale, self.dtype)

    def judge(self, target: "torch.Tensor") -> "Verdict":
        """`target`, of all heads: its shape, that it is finite, and the judged heads against `wanted`."""
        from ascend_vl.probes import judge

        shape, broken = self.heads[2].shape, int((~target.isfinite()).sum())
        if target.shape != shape:
            return judge.Verdict(False, f"shape {tuple(target.shape)} instead of {tuple(shape)}")
        if broken:
            return judge.Verdict(False, f"{broken} values are not finite")
        return judge.judge(*self.wanted, target[:, JUDGED])

    def smallest_width(self, operator: str, head_size: int) -> int | None:
        """The smallest width the operator takes and is right at; None when there is none."""
        for width in (head_size, *(w for w in WIDTHS if w > head_size)):
            try:
                if self.judge(self.ask(operator, width)).right:
                    return width
            except RuntimeError:
                continue
        return None

    def best(self, chip: str, head_size: int, without: str = "") -> dict[str, object]:
        """The first operator that is right for all pictures, with its width; empty when none is."""
        from ascend_vl.adaptations.seams.attention_operators import candidates

        for operator in candidates(chip):
            width = None if operator == without else self.smallest_width(operator, head_size)
            if width is not None:
                return {"operator": operator, "width": width}
        return {}


def head_width(shapes: Shapes, note: Note) -> Finding:
    """Does the framework's operator take heads as wide as they are? If not, from which width on?"""
    from ascend_vl.probes import device

    question, size = Question(shapes, shapes.pictures[:1]), shapes.head_size
    operator = stock_operator(device.chip_name(), installed())
    note(operator=operator)
    try:
        question.ask(operator, size)
    except RuntimeError as error:
        width = question.smallest_width(operator, size)
        first = str(error).splitlines()[0]
        numbers = {"head_size": size, "width": width, "refusal": first}
        if width is None:
            return Finding(
                None,
                Text(
                    f"{first}; right at no width up to {WIDTHS[-1]}", f"{first}；宽度在 {WIDTHS[-1]} 以内结果均不正确"
                ),
                numbers,
            )
        return Finding(True, Text(f"{size} is refused, {width} is taken", f"不接受 {size}，接受 {width}"), numbers)
    return Finding(False, Text(f"heads {size} wide are taken", f"可直接接受宽度 {size}"), {"head_size": size})


def zero_length(shapes: Shapes, note: Note) -> Finding:
    """Does an empty sequence in the lengths spoil what follows it? Asked as vllm-ascend 0.11 asks: with a leading 0."""
    import torch
    import torch_npu

    from ascend_vl.adaptations.seams.attention_operators import default_width
    from ascend_vl.probes import device

    pictures = shapes.pictures[:2]
    question, width = Question(shapes, pictures), default_width("unpad", shapes.head_size)
    padded = [torch.nn.functional.pad(t, (0, width - shapes.head_size)).to(question.npu) for t in question.heads]
    out = torch.empty_like(padded[0])
    torch_npu._npu_flash_attention_unpad(
        query=padded[0],
        key=padded[1],
        value=padded[2],
        seq_len=torch.tensor([0, *pictures], dtype=torch.int32),
        scale_value=question.scale,
        num_heads=shapes.vision_heads,
        num_kv_heads=shapes.vision_heads,
        out=out,
    )
    with_zero = device.fetched(out)[..., : shapes.head_size]
    spoiled = question.judge(with_zero)
    note(with_zero=spoiled.reason)
    if spoiled.right:
        return Finding(False, Text("an empty sequence is harmless", "空序列无影响"), spoiled.numbers())
    without = question.ask("unpad", width)
    clean = question.judge(without)
    if torch.equal(with_zero, without):
        why = Text("wrong, but the same without an empty sequence", "结果错误，但没有空序列时也相同")
        return Finding(False, why, clean.numbers())
    if not clean.right:
        return Finding(None, Text("wrong without an empty sequence too", "没有空序列时也错误"), clean.numbers())
    return Finding(True, Text("an empty sequence spoils what follows it", "空序列破坏其后的结果"), spoiled.numbers())


def borders(shapes: Shapes, note: Note) -> Finding:
    """Are pictures in one call kept apart? The framework's operator against itself, one picture at a time."""
    import torch

    from ascend_vl.probes import device
    from ascend_vl.probes.judge import relative

    chip, version = device.chip_name(), installed()
    operator, width = stock_operator(chip, version), stock_width(version, shapes.head_size)
    question = Question(shapes, shapes.pictures)
    if width == shapes.head_size:
        width = question_width(operator, shapes)
    together = question.ask(operator, width)
    alone, begin = [], 0
    for rows in shapes.pictures:
        single = Question(shapes, (rows,))
        single.heads = tuple(t[begin : begin + rows] for t in question.heads)  # type: ignore[assignment]
        alone.append(single.ask(operator, width))
        begin += rows
    apart = relative(together, torch.cat(alone).double())
    note(stock=operator, together_against_alone=apart)
    numbers = {"stock": operator, "together_against_alone": apart}
    if apart <= TOGETHER:
        return Finding(False, Text(f"pictures are kept apart ({apart:.1e})", f"图片互不影响（{apart:.1e}）"), numbers)
    best = question.best(chip, shapes.head_size, without=operator)
    if not best:
        return Finding(
            None, Text("pictures see each other, and no operator is right", "图片互相影响，且没有可用算子"), numbers
        )
    why = Text(
        f"pictures see each other ({apart:.1e}); {best['operator']} is right",
        f"图片互相影响（{apart:.1e}）；{best['operator']} 正确",
    )
    return Finding(True, why, numbers | best)


def question_width(operator: str, shapes: Shapes) -> int:
    """The width at which to ask about other things than the width."""
    from ascend_vl.adaptations.seams.attention_operators import default_width

    return default_width(operator, shapes.head_size)


def precision(shapes: Shapes, note: Note) -> Finding:
    """Is one picture right by the framework's operator, and is another operator right where it is not?"""
    from ascend_vl.probes import device

    chip, version = device.chip_name(), installed()
    operator = stock_operator(chip, version)
    question = Question(shapes, (max(shapes.pictures),))
    verdict = question.judge(
        question.ask(operator, max(stock_width(version, shapes.head_size), question_width(operator, shapes)))
    )
    note(stock=operator, verdict=verdict.reason)
    if verdict.right:
        return Finding(False, Text(f"{operator}: {verdict.reason}", f"{operator}：{verdict.reason}"), verdict.numbers())
    best = question.best(chip, shapes.head_size, without=operator)
    if not best:
        return Finding(
            None,
            Text(
                f"{operator}: {verdict.reason}; no operator is better", f"{operator}：{verdict.reason}；没有更好的算子"
            ),
            verdict.numbers(),
        )
    why = Text(
        f"{operator}: {verdict.reason}; {best['operator']} is right",
        f"{operator}：{verdict.reason}；{best['operator']} 正确",
    )
    return Finding(True, why, verdict.numbers() | best)


HEAD_WIDTH = Probe("vision-head-width", Text("width of vision heads", "视觉注意力头宽度"), head_width, __name__)
ZERO_LENGTH = Probe(
    "vision-zero-length", Text("an empty sequence among the lengths", "长度中的空序列"), zero_length, __name__
)
BORDERS = Probe("vision-borders", Text("several pictures in one call", "一次调用多张图片"), borders, __name__)
PRECISION = Probe("vision-precision", Text("precision of vision attention", "视觉注意力精度"), precision, __name__)
