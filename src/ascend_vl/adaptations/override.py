"""The user's word on adaptations: `ASCEND_VL=off` and `ASCEND_VL_ADAPT=+id,-id`."""

import os
from dataclasses import dataclass

from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text

VARIABLE = "ASCEND_VL_ADAPT"
SWITCH = "ASCEND_VL"


@dataclass(frozen=True)
class Override:
    """Ids the user forces on and ids the user suppresses."""

    forced: frozenset[str] = frozenset()
    suppressed: frozenset[str] = frozenset()


def switched_off() -> bool:
    """Whether the whole package is to do nothing (`ASCEND_VL=off`)."""
    return os.environ.get(SWITCH, "").strip().lower() in ("off", "0", "false", "no")


def parse(text: str, known: frozenset[str]) -> Override:
    """Read "+id,-id". Raises AscendVLError `adaptation-unknown` or `adaptation-sign` for what it cannot read."""
    forced: set[str] = set()
    suppressed: set[str] = set()
    for item in filter(None, (part.strip() for part in text.split(","))):
        sign, name = item[0], item[1:]
        if sign not in "+-":
            raise AscendVLError(
                "adaptation-sign",
                Text(f"{VARIABLE}: {item!r} does not begin with + or -.", f"{VARIABLE}：{item!r} 没有以 + 或 - 开头。"),
                Text("+id forces an adaptation on, -id suppresses it.", "+id 强制启用，-id 禁用。"),
                Text(f"Write {VARIABLE}=+{item} or -{item}.", f"请写 {VARIABLE}=+{item} 或 -{item}。"),
            )
        if name not in known:
            listed = ", ".join(sorted(known))
            raise AscendVLError(
                "adaptation-unknown",
                Text(f"{VARIABLE}: there is no adaptation {name!r}.", f"{VARIABLE}：没有名为 {name!r} 的适配。"),
                Text(f"The adaptations are: {listed}.", f"可用的适配：{listed}。"),
                Text("Correct the id, or leave it out.", "请改正名称，或去掉它。"),
            )
        (forced if sign == "+" else suppressed).add(name)
    return Override(frozenset(forced - suppressed), frozenset(suppressed))


def current(known: frozenset[str]) -> Override:
    """The override of this process's environment."""
    return parse(os.environ.get(VARIABLE, ""), known)
