"""Picture embeddings are merged without assigning through a boolean mask."""

from typing import Any

from ascend_vl.adaptations.decide import at_least
from ascend_vl.adaptations.record import Adaptation, Applies, Facts, Finding, Replaced
from ascend_vl.language import Text


def applies(facts: Facts) -> Applies:
    """vLLM merges through a boolean mask since vllm-ascend 0.20.2, and a patch of vllm-ascend does so before.

    In 0.11 the patch holds for every model; later it misses models imported before it, as Qwen3-VL is.
    """
    if at_least(facts.vllm_ascend, "0.12.0") is False or at_least(facts.vllm_ascend, "0.20.2") is not False:
        return Applies("yes", Text("this version merges through a boolean mask", "该版本通过布尔掩码合并"))
    by_scatter = Text(
        "this version merges by masked_scatter where the model was imported before vllm-ascend's own patch",
        "该版本在模型先于 vllm-ascend 补丁导入时使用 masked_scatter 合并",
    )
    return Applies("yes", by_scatter, on_unprobed=False)


def apply(model: Any, finding: Finding | None) -> list[Replaced]:
    """Rebind the merge in every loaded module that holds it; the probe may have found that only `gather` works."""
    from vllm.model_executor.models import utils

    from ascend_vl.adaptations.seams import functions, merge

    method = str(finding.numbers.get("method", "index-copy")) if finding else "index-copy"
    original = utils._merge_multimodal_embeddings
    return functions.rebind(original, merge.like(original, method), ("vllm", "ascend_vl"))


RECORD = Adaptation(
    id="embedding-merge",
    title=Text("Picture embeddings merged by index", "按索引合并图像特征"),
    symptom=Text(
        "text is answered, any picture ends the engine: error code 507018, kernelName=IndexPut",
        "文本正常，任何图片都会使引擎崩溃：error code 507018，kernelName=IndexPut",
    ),
    cause=Text(
        "assigning through a boolean mask runs on the AI CPU, whose IndexPut kernel is broken on 310P",
        "布尔掩码赋值落到 AI CPU 上执行，310P 的 IndexPut 内核有缺陷",
    ),
    evidence=(
        "https://github.com/vllm-project/vllm-ascend/issues/12086",
        "https://github.com/vllm-project/vllm-ascend/pull/12914",
        "https://github.com/Ascend/pytorch/issues/153",
    ),
    phase="construct",
    seam="vllm.model_executor.models.utils._merge_multimodal_embeddings and every module that imported it",
    applies=applies,
    apply=apply,
    probe="index-put",
    on_unprobed=True,
    cost=Text("none: one nonzero and one index_copy_", "无额外开销：一次 nonzero 与一次 index_copy_"),
    retire=Text("when the probe assigns through a mask without an error", "当探测中布尔掩码赋值不再报错时自动停用"),
)
