"""How one adaptation stands, from facts, the user's word and what its probe found. Pure: nothing is applied here."""

import re

from ascend_vl.adaptations.override import Override
from ascend_vl.adaptations.record import Adaptation, Facts, Finding, State
from ascend_vl.language import Text

# vllm-ascend versions that the records were written for; a version outside is served as it is.
KNOWN_STACKS = ("0.11.0", "0.18.0", "0.23.0", "0.26.0")

BY_USER = Text("by the user (ASCEND_VL_ADAPT)", "由用户指定（ASCEND_VL_ADAPT）")
NO_NPU = Text("there is no NPU here", "本机没有 NPU")
NOT_PROBED = Text(
    "no probe has run for this chip, driver, versions and shapes", "尚未针对该芯片、驱动、版本和形状运行探测"
)


def release(version: str | None) -> str | None:
    """ "0.23.0.post1+local" -> "0.23.0"; pre-releases count as the release they lead to ("0.26.0rc1" -> "0.26.0")."""
    if version is None:
        return None
    match = re.match(r"\d+(\.\d+){0,2}", version)
    return match.group() if match else None


def known_stack(facts: Facts) -> bool:
    """Whether the installed vllm-ascend is one the records know (no vllm-ascend at all counts as known)."""
    return facts.vllm_ascend is None or release(facts.vllm_ascend) in KNOWN_STACKS


def decide(record: Adaptation, facts: Facts, override: Override, finding: Finding | None) -> tuple[State, Text]:
    """The state of `record`, and why. `finding` is what its probe found, None when it has not run."""
    if record.id in override.suppressed:
        return "suppressed", BY_USER
    if facts.chip is None:
        return "not-applicable", NO_NPU
    if record.id in override.forced:
        return "forced", BY_USER
    if not known_stack(facts):
        return "not-applicable", Text(
            f"vllm-ascend {facts.vllm_ascend} is not known to this package: it is served as it is",
            f"本软件包不认识 vllm-ascend {facts.vllm_ascend}：按原样提供服务",
        )
    applies = record.applies(facts)
    if applies.verdict == "no":
        return "not-applicable", applies.reason
    if applies.verdict == "upstream":
        return "handled-upstream", applies.reason
    if record.probe is None:
        return "active", applies.reason
    if finding is None or finding.fault is None:
        why = NOT_PROBED if finding is None else finding.reason
        stays = record.on_unprobed if applies.on_unprobed is None else applies.on_unprobed
        if stays:
            return "unprobed", why
        if applies.on_unprobed is False:
            return "handled-upstream", applies.reason
        return "not-applicable", Text(f"{why.en}; it stays off until a probe has run", f"{why.zh}；在探测之前保持关闭")
    return ("active" if finding.fault else "probed-fine"), finding.reason


def at_least(version: str | None, minimum: str) -> bool | None:
    """Whether `version` is `minimum` or later, by release number; None when it is not known."""
    have = release(version)
    if have is None:
        return None
    return [int(n) for n in have.split(".")] >= [int(n) for n in minimum.split(".")]
