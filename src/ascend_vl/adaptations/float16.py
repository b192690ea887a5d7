"""float16 where the chip has no bfloat16; nobody's config.json is edited."""

from collections.abc import MutableMapping
from typing import Any

from ascend_vl.adaptations.record import Adaptation, Applies, Facts, Finding, Replaced
from ascend_vl.language import Text


def applies(facts: Facts) -> Applies:
    """310P has no bfloat16, and vllm-ascend does not tell vLLM so."""
    if not (facts.chip or "").startswith("310P"):
        return Applies("no", Text("this chip has bfloat16", "该芯片支持 bfloat16"))
    return Applies("yes", Text("310P has no bfloat16", "310P 不支持 bfloat16"))


def apply(arguments: MutableMapping[str, Any], finding: Finding | None) -> list[Replaced]:
    """Set `dtype` unless the user set one that the chip has."""
    if arguments.get("dtype") not in ("float16", "half", "float32", "float"):
        arguments["dtype"] = "float16"
    return []


RECORD = Adaptation(
    id="float16",
    title=Text("float16 on chips without bfloat16", "在不支持 bfloat16 的芯片上使用 float16"),
    symptom=Text(
        "start-up ends in: not implemented for DT_BFLOAT16; people edit config.json",
        "启动报错：not implemented for DT_BFLOAT16；用户因此修改 config.json",
    ),
    cause=Text(
        "--dtype auto takes bfloat16 from config.json; vllm-ascend does not narrow the dtypes on 310P",
        "--dtype auto 取 config.json 中的 bfloat16；vllm-ascend 在 310P 上未收窄可用类型",
    ),
    evidence=("https://www.modelscope.cn/models/Ascend-SACT/Qwen3-VL-8B-300I-Duo-vllm-ascend (step 4)",),
    phase="config",
    seam="--dtype",
    applies=applies,
    apply=apply,
    probe="bfloat16",
    on_unprobed=True,
    cost=Text("float16's range: activations beyond 65504 overflow", "float16 的范围：超过 65504 的激活会溢出"),
    retire=Text("when the probe computes in bfloat16", "当探测可用 bfloat16 计算时自动停用"),
)
