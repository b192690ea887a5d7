"""The stored tensors judged against config.json: what is missing, what does not belong, what is of the wrong kind."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ascend_vl.checkpoint.comparison import Comparison, canonical, compare
from ascend_vl.checkpoint.config_file import Config, configured_dtype
from ascend_vl.checkpoint.defects import Defect, defect, some
from ascend_vl.checkpoint.expected import HEAD_TENSORS, LM_HEAD, Shapes, expected_shapes, head_shapes
from ascend_vl.checkpoint.quantisation import Quantisation, description_defects
from ascend_vl.checkpoint.shapes import tie_flag
from ascend_vl.checkpoint.shards import Shards

Family = Literal["qwen3-vl", "qwen3-vl-moe", "hidream-o1", "other"]

_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_FLOATS = ("F64", "F32", "F16", "BF16")


@dataclass(frozen=True)
class Judgement:
    """Names in the published layout; `missing` includes an untied lm_head and the rest of a partial pixel head."""

    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    defects: tuple[Defect, ...]


def judge_tensors(config: Config, shards: Shards, quantisation: Quantisation | None, family: Family) -> Judgement:
    """Judge the tensors of a checkpoint of the Qwen3-VL family."""
    comparison = _compare(config, shards, quantisation, family)
    stored = {comparison.renamed.get(name, name) for name in shards.tensors}
    tied = tie_flag(config.value)
    no_lm_head = not tied and not any(name.startswith("lm_head.") for name in stored)
    absent = [name for name in HEAD_TENSORS if name not in stored] if family == "hidream-o1" else []
    missing = {*comparison.missing, *absent, *([LM_HEAD] if no_lm_head else [])}
    # What the index lists is not left out of the checkpoint, only out of the files that are here.
    lost = missing & set(shards.listed)
    found = _name_defects(comparison, sorted({*comparison.missing, *lost}), stored)
    if set(absent) - lost:
        there = len(HEAD_TENSORS) - len(absent)
        found.append(
            defect(
                "head-incomplete",
                f"{there} of 9 head tensors; missing: {some(absent, 9)}.",
                f"像素头 9 个张量只有 {there} 个，缺少：{some(absent, 9)}。",
            )
        )
    if no_lm_head and LM_HEAD not in lost:
        found.append(
            defect(
                "lm-head-missing",
                "lm_head.weight is missing and tie_word_embeddings is false.",
                "缺少 lm_head.weight，而 tie_word_embeddings 为 false。",
            )
        )
    if tied and LM_HEAD in stored:
        found.append(
            defect(
                "lm-head-unused",
                "tie_word_embeddings is true: the stored lm_head.weight is not read.",
                "tie_word_embeddings 为 true：存储的 lm_head.weight 不会被读取。",
            )
        )
    found += _dtype_defects(shards, config, quantisation) + description_defects(quantisation, shards.tensors)
    return Judgement(tuple(sorted(missing)), comparison.unexpected, tuple(found))


def _compare(config: Config, shards: Shards, quantisation: Quantisation | None, family: Family) -> Comparison:
    if config.text is None or config.vision is None:
        return _without_config(shards)
    optional: Shapes = {LM_HEAD: (config.text.vocab, config.text.hidden)}
    if family == "hidream-o1":
        optional |= head_shapes(config.text.hidden)
    return compare(shards.tensors, expected_shapes(config.text, config.vision), optional, quantisation)


def _without_config(shards: Shards) -> Comparison:
    """No config, no expectation: only names under another layout can be told."""
    renamed = {name: canonical(name) for name in shards.tensors if canonical(name) != name}
    return Comparison((), (), {}, renamed)


def _name_defects(comparison: Comparison, missing: list[str], stored: set[str]) -> list[Defect]:
    found: list[Defect] = []
    if comparison.renamed:
        found.append(_layout(comparison.renamed, stored))
    if missing:
        names, count = some(missing), len(missing)
        found.append(defect("tensor-missing", f"{count} missing: {names}.", f"缺少 {count} 个：{names}。"))
    if comparison.unexpected:
        names, count = some(comparison.unexpected), len(comparison.unexpected)
        found.append(defect("tensor-unexpected", f"{count} unexpected: {names}.", f"多出 {count} 个：{names}。"))
    for name, (shape, wanted) in list(comparison.wrong_shapes.items())[:8]:
        found.append(
            defect(
                "shape-mismatch",
                f"{name} is {list(shape)}, not {list(wanted)}.",
                f"{name} 为 {list(shape)}，应为 {list(wanted)}。",
            )
        )
    return found


def _layout(renamed: Mapping[str, str], stored: set[str]) -> Defect:
    old, new = next(iter(sorted(renamed.items())))
    count = len(renamed)
    if set(HEAD_TENSORS) & set(renamed.values()):
        lost = [
            part
            for part, there in (
                ("lm_head", LM_HEAD in stored),
                ("deepstack_merger_list", any("deepstack" in name for name in stored)),
            )
            if not there
        ]
        without = f", without {' and '.join(lost)}" if lost else ""
        zh = f"，且没有 {'、'.join(lost)}" if lost else ""
        return defect(
            "comfy-repackaging",
            f"{count} names without the model. prefix ({old}){without}.",
            f"{count} 个张量名缺少 model. 前缀（{old}）{zh}。",
        )
    return defect(
        "key-layout",
        f"{count} names of another layout: {old} is {new} as published.",
        f"{count} 个张量名属于其他布局：{old} 在官方布局中为 {new}。",
    )


def _dtype_defects(shards: Shards, config: Config, quantisation: Quantisation | None) -> list[Defect]:
    counts = Counter(info.dtype for info in shards.tensors.values())
    found = []
    strange = sorted(name for name, info in shards.tensors.items() if info.dtype not in _FLOATS)
    if strange and quantisation is None:
        dtypes = ", ".join(sorted({shards.tensors[name].dtype for name in strange}))
        found.append(
            defect(
                "dtype-unexpected",
                f"{dtypes} without a quantisation config: {some(strange)}.",
                f"没有量化配置却有 {dtypes}：{some(strange)}。",
            )
        )
    if len(counts) > 1 and quantisation is None:
        shown = ", ".join(f"{dtype} {count}" for dtype, count in counts.most_common())
        found.append(defect("dtype-mixed", f"Tensors by dtype: {shown}.", f"各类型张量数：{shown}。"))
    wanted = configured_dtype(config.value)
    most = counts.most_common(1)[0][0] if counts else None
    if wanted and most in _DTYPES and _DTYPES[most] != wanted and quantisation is None:
        found.append(
            defect(
                "dtype-differs",
                f"Stored {_DTYPES[most]}, config.json says {wanted}.",
                f"存储为 {_DTYPES[most]}，config.json 写 {wanted}。",
            )
        )
    return found
