"""Quantised layouts: which tensors stand for a weight under ModelSlim, fp8, GPTQ, AWQ and compressed-tensors."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ascend_vl.checkpoint.defects import Defect, defect, some
from ascend_vl.checkpoint.safetensors_header import TensorInfo

# Leaves that must stand together for one linear module, and those that may stand beside them.
_GPTQ = (("qweight", "qzeros", "scales", "g_idx"), ())
_AWQ = (("qweight", "qzeros", "scales"), ())
_FLOAT8 = ("F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ")
_SCALES = ("weight_scale_inv", "weight_scale")
_BESIDE = (
    "weight_scale_inv",
    "weight_scale",
    "weight_zero_point",
    "weight_shape",
    "weight_g_idx",
    "input_scale",
    "input_zero_point",
)
_PACKED = ("weight_packed", "weight_scale")
METHODS = ("modelslim", "fp8", "gptq", "awq", "compressed-tensors")


@dataclass(frozen=True)
class Quantisation:
    """How the weights are quantised. `summary` is for people; `types` counts a description's entries by type."""

    method: str
    summary: str
    bits: int
    types: Mapping[str, int] = field(default_factory=dict)
    description: Mapping[str, str] = field(default_factory=dict)


def quantisation_of(config: Mapping[str, Any], description: Any) -> tuple[Quantisation | None, list[Defect]]:
    """What config.json's `quantization_config` and ModelSlim's description file (parsed, or None) say."""
    if isinstance(description, dict):
        return _modelslim(description)
    text = config.get("text_config")
    for section in (config, text if isinstance(text, dict) else {}):
        settings = section.get("quantization_config") or section.get("compression_config")
        if isinstance(settings, dict):
            return _by_config(settings)
    return None, []


def _by_config(settings: Mapping[str, Any]) -> tuple[Quantisation | None, list[Defect]]:
    method = str(settings.get("quant_method", "")).lower()
    bits = settings.get("bits", settings.get("w_bit", 8 if method in ("fp8", "compressed-tensors") else 4))
    bits = bits if type(bits) is int and 0 < bits <= 16 else 8
    if method not in METHODS or method == "modelslim":
        name = method or "?"
        return None, [defect("quant-unknown", f"quant_method is {name}.", f"quant_method 为 {name}。")]
    block = settings.get("weight_block_size")
    detail = f", blocks {block}" if isinstance(block, list) else ""
    return Quantisation(method, f"{method}, {bits} bits{detail}", bits), []


def _modelslim(description: Mapping[str, Any]) -> tuple[Quantisation | None, list[Defect]]:
    """Keys with a dot are tensors; the others are settings such as model_quant_type and version."""
    tensors = {str(key): value for key, value in description.items() if "." in str(key) and isinstance(value, str)}
    if not tensors:
        return None, [defect("quant-description", "The description names no tensor.", "量化描述文件未列出任何张量。")]
    types = Counter(tensors.values())
    kind, version = description.get("model_quant_type", "?"), description.get("version", "?")
    counts = ", ".join(f"{name} {count}" for name, count in sorted(types.items()))
    bits = 4 if str(kind).upper().startswith("W4") else 8
    found = []
    fused = sorted(name for name in tensors if ".gate_up_proj." in name or ".qkv_proj." in name)
    if fused:
        found.append(defect("quant-fused-names", f"Already fused: {some(fused)}.", f"已融合：{some(fused)}。"))
    return Quantisation(
        "modelslim", f"ModelSlim {kind} (version {version}: {counts})", bits, dict(types), tensors
    ), found


def stand_ins(
    weight: str, tensors: Mapping[str, TensorInfo], quantisation: Quantisation | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(required, permitted) tensor names that stand for `weight` ("M.weight", or a fused expert tensor "M")."""
    if quantisation is None:
        return (weight,), ()
    if quantisation.method == "modelslim":
        module = weight.removesuffix(".weight")
        return (weight,), tuple(name for name in quantisation.description if name.rpartition(".")[0] == module)
    if not weight.endswith(".weight"):
        return _fused_expert(weight, tensors)
    module = weight.removesuffix(".weight")

    def present(leaves: Iterable[str]) -> bool:
        return any(f"{module}.{leaf}" in tensors for leaf in leaves)

    if quantisation.method in ("gptq", "awq"):
        needed, beside = _GPTQ if quantisation.method == "gptq" else _AWQ
        if present(("qweight", "qzeros", "scales")):
            # A bias beside qweight is part of GPTQ's format even where the model has none.
            return tuple(f"{module}.{leaf}" for leaf in needed), tuple(f"{module}.{leaf}" for leaf in (*beside, "bias"))
        return (weight,), ()
    permitted = tuple(f"{module}.{leaf}" for leaf in _BESIDE)
    if present(("weight_packed",)):
        return tuple(f"{module}.{leaf}" for leaf in _PACKED), permitted
    if weight in tensors and tensors[weight].dtype in (*_FLOAT8, "I8"):
        scale = next((leaf for leaf in _SCALES if f"{module}.{leaf}" in tensors), _SCALES[quantisation.method != "fp8"])
        return (weight, f"{module}.{scale}"), permitted
    return (weight,), ()


def _fused_expert(weight: str, tensors: Mapping[str, TensorInfo]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if weight in tensors and tensors[weight].dtype in _FLOAT8:
        scale = next((end for end in ("_scale_inv", "_scale") if weight + end in tensors), "_scale_inv")
        return (weight, weight + scale), ()
    return (weight,), ()


def cache_scales(name: str) -> bool:
    """Whether `name` is a key/value-cache scale, which any quantised layer may carry."""
    return name.endswith((".k_scale", ".v_scale", ".q_scale", ".kv_cache_scale", ".kv_cache_offset"))


def description_defects(quantisation: Quantisation | None, tensors: Mapping[str, TensorInfo]) -> list[Defect]:
    """Where ModelSlim's description and the stored tensors disagree: absent names, and W8 weights that are not int8."""
    if quantisation is None or quantisation.method != "modelslim":
        return []
    found = []
    absent = sorted(set(quantisation.description) - set(tensors))
    if absent:
        found.append(
            defect(
                "quant-description", f"Described but not stored: {some(absent)}.", f"有描述但未存储：{some(absent)}。"
            )
        )
    wrong = sorted(
        f"{name} ({kind}, {tensors[name].dtype})"
        for name, kind in quantisation.description.items()
        if name.endswith(".weight") and name in tensors and _wrong_dtype(kind, tensors[name].dtype)
    )
    if wrong:
        found.append(
            defect(
                "quant-description",
                f"Type and dtype disagree: {some(wrong)}.",
                f"量化类型与数据类型不符：{some(wrong)}。",
            )
        )
    return found


def _wrong_dtype(kind: str, dtype: str) -> bool:
    if kind == "FLOAT":
        return dtype == "I8"
    return kind.startswith("W8") and dtype not in ("I8", *_FLOAT8)
