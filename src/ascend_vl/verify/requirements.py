"""What a comparison must reach: `NAME=V` for every case, `NAME.mean=V` for the mean, `NAME=LO..HI` for a range.

A value meets a requirement when it is not below V (not outside LO..HI); equality passes. Nothing is rounded first.
"""

import math
import re
from dataclasses import dataclass
from typing import Any

from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text

METRICS = (
    "token_match",
    "prefix_match",
    "first_divergence",
    "text_similarity",
    "semantic_similarity",
    "key_fields",
    "numbers_match",
    "length_ratio",
)
# A position is not a score, so nothing can be required of it.
REQUIRABLE = tuple(name for name in METRICS if name != "first_divergence")
DEFAULT = ("token_match=0.9", "key_fields=1", "numbers_match=1")
RECIPES = {
    "default": DEFAULT,
    # The published HiDream port's own procedure: means over the cases, no look at numbers.
    "port": ("token_match.mean=0.90", "semantic_similarity.mean=0.95"),
}


@dataclass(frozen=True)
class Requirement:
    """One requirement; `optional` ones (of a default set) are passed over when no case declares key fields."""

    metric: str
    low: float
    high: float = math.inf
    mean: bool = False
    optional: bool = False

    def __str__(self) -> str:
        bound = f"{_number(self.low)}" if math.isinf(self.high) else f"{_number(self.low)}..{_number(self.high)}"
        return f"{self.metric}{'.mean' if self.mean else ''}={bound}"

    def met_by(self, value: float) -> bool:
        """Whether one value (of a case, or the mean) satisfies it."""
        return self.low <= value <= self.high

    def to_json(self) -> dict[str, Any]:
        """Name, scope and bounds."""
        high = None if math.isinf(self.high) else self.high
        scope = "mean" if self.mean else "every case"
        return {"require": str(self), "metric": self.metric, "scope": scope, "low": self.low, "high": high}


def _number(value: float) -> str:
    """The shortest text that reads back as the same number."""
    return repr(value).removesuffix(".0")


def parse(texts: tuple[str, ...] | list[str], optional: bool = False) -> list[Requirement]:
    """Requirements from their command-line form. Raises AscendVLError `requirement-invalid`."""
    return [_parse(text, optional) for text in texts]


def _parse(text: str, optional: bool) -> Requirement:
    match = re.fullmatch(r"\s*(\w+?)(\.mean)?\s*=\s*([^\s=]+)\s*", text)
    if not match:
        raise _invalid(text, "it is not NAME=V, NAME.mean=V or NAME=LO..HI", "应为 NAME=V、NAME.mean=V 或 NAME=LO..HI")
    name, mean, bound = match.groups()
    low_text, dots, high_text = bound.partition("..")
    if name not in REQUIRABLE:
        names = ", ".join(REQUIRABLE)
        raise _invalid(
            text, f"there is no metric {name!r} to require; there are: {names}", f"没有指标 {name!r}；可用：{names}"
        )
    try:
        if not bound.isascii() or "_" in bound:
            raise ValueError
        low = float(low_text)
        high = float(high_text) if dots else math.inf
    except ValueError:
        raise _invalid(text, "its bound is not a number", "界限不是数字") from None
    if not math.isfinite(low) or math.isnan(high) or low > high or (high_text and not math.isfinite(high)):
        raise _invalid(text, "its bounds are not finite and in order", "界限必须有限且有序")
    if low < 0 or (name != "length_ratio" and (low > 1 or 1 < high < math.inf)):
        span = "0 or more" if name == "length_ratio" else "between 0 and 1"
        span_zh = "不小于 0" if name == "length_ratio" else "在 0 到 1 之间"
        raise _invalid(text, f"`{name}` is {span}", f"{name} 的取值{span_zh}")
    return Requirement(name, low, high, bool(mean), optional)


def _invalid(text: str, en: str, zh: str) -> AscendVLError:
    return AscendVLError(
        "requirement-invalid",
        Text(f"The requirement {text!r} cannot be used.", f"无法使用要求 {text!r}。"),
        Text(f"{en[0].upper()}{en[1:]}.", f"{zh}。"),
        Text(
            "For example: --require token_match=0.95 --require length_ratio=0.5..2",
            "例如：--require token_match=0.95 --require length_ratio=0.5..2",
        ),
    )


def of_recipe(name: str) -> list[Requirement]:
    """A named set of requirements. Raises AscendVLError `recipe-unknown`."""
    if name not in RECIPES:
        raise AscendVLError(
            "recipe-unknown",
            Text(f"There is no recipe {name!r}.", f"没有名为 {name!r} 的方案。"),
            Text(f"There are: {', '.join(RECIPES)}.", f"可用：{'、'.join(RECIPES)}。"),
            Text("Name one of them, or give --require.", "请使用其中之一，或使用 --require。"),
        )
    return parse(RECIPES[name], optional=name == "default")
