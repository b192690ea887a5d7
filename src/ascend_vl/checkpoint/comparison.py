"""Stored tensors against those the config calls for: missing, unexpected, of the wrong shape, under old names."""

from collections.abc import Mapping
from dataclasses import dataclass

from ascend_vl.checkpoint.expected import HEAD_TENSORS, LM_HEAD, Shapes
from ascend_vl.checkpoint.quantisation import Quantisation, cache_scales, stand_ins
from ascend_vl.checkpoint.safetensors_header import TensorInfo

# Prefixes of other layouts and their published form; the first that fits counts.
RENAMES = (
    ("language_model.model.", "model.language_model."),
    ("language_model.lm_head.", "lm_head."),
    ("model.language_model.model.", "model.language_model."),
    ("model.layers.", "model.language_model.layers."),
    ("model.embed_tokens.", "model.language_model.embed_tokens."),
    ("model.norm.", "model.language_model.norm."),
    ("language_model.", "model.language_model."),
    ("visual.", "model.visual."),
    ("x_embedder.", "model.x_embedder."),
    ("t_embedder1.", "model.t_embedder1."),
    ("final_layer2.", "model.final_layer2."),
    ("layers.", "model.language_model.layers."),
    ("embed_tokens.", "model.language_model.embed_tokens."),
    ("norm.", "model.language_model.norm."),
)
_WRAPPERS = ("base_model.model.", "module.", "_orig_mod.", "model.diffusion_model.")


@dataclass(frozen=True)
class Comparison:
    """Names in the published layout.

    `renamed` is stored name to published name; `wrong_shapes` is name to (stored shape, expected shape).
    """

    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    wrong_shapes: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]
    renamed: Mapping[str, str]


def canonical(name: str) -> str:
    """The published name of a tensor stored under an older or repackaged one (or `name` itself)."""
    for wrapper in _WRAPPERS:
        name = name.removeprefix(wrapper)
    for old, new in RENAMES:
        if name.startswith(old):
            return new + name.removeprefix(old)
    return name


def renamed_names(tensors: Mapping[str, TensorInfo], known: set[str]) -> dict[str, str]:
    """Stored name to published name, for names that are not `known` but whose published form is, and is absent."""
    found = {}
    for name in tensors:
        if name in known:
            continue
        better = canonical(name)
        module = better.rpartition(".")[0]
        if better != name and better not in tensors and (better in known or f"{module}.weight" in known):
            found[name] = better
    return found


def compare(
    tensors: Mapping[str, TensorInfo], expected: Shapes, optional: Shapes, quantisation: Quantisation | None
) -> Comparison:
    """Compare; whether an absent `optional` tensor (lm_head, the pixel head) is a defect is judged elsewhere."""
    expected = _expert_layout(tensors, expected)
    known = set(expected) | set(optional) | {LM_HEAD, *HEAD_TENSORS}
    renamed = renamed_names(tensors, known)
    stored = {renamed.get(name, name): info for name, info in tensors.items()}
    required: set[str] = set()
    permitted: set[str] = set()
    for name in expected:
        needed, beside = stand_ins(name, stored, quantisation) if _quantisable(name) else ((name,), ())
        required.update(needed)
        permitted.update(beside)
    if LM_HEAD in optional:
        needed, beside = stand_ins(LM_HEAD, stored, quantisation)
        permitted.update((*needed, *beside))
    if quantisation is not None:
        permitted.update(quantisation.description)
        permitted.update(name for name in stored if cache_scales(name))
    shapes = expected | optional
    return Comparison(
        missing=tuple(sorted(required - set(stored))),
        unexpected=tuple(sorted(set(stored) - required - permitted - set(optional))),
        wrong_shapes={
            name: (stored[name].shape, shapes[name])
            for name in sorted(set(stored) & set(shapes))
            if stored[name].shape != shapes[name] and not _packed(stored[name], quantisation)
        },
        renamed=renamed,
    )


def _quantisable(name: str) -> bool:
    return name.endswith(
        ("_proj.weight", "_proj", ".qkv.weight", ".proj.weight", "_fc1.weight", "_fc2.weight", ".gate.weight")
    )


def _packed(info: TensorInfo, quantisation: Quantisation | None) -> bool:
    """Whether several weights share an element (4 bits in int8), so that the shape is not the config's."""
    return quantisation is not None and quantisation.bits < 8 and info.dtype in ("I8", "U8", "I32")


def _expert_layout(tensors: Mapping[str, TensorInfo], expected: Shapes) -> Shapes:
    """Experts one by one instead of fused, in the layers where the files store them so (quantised files do)."""
    separate = {name.partition(".experts.")[0] for name in tensors if ".mlp.experts.0." in name}
    if not separate:
        return expected
    shapes: Shapes = {}
    for name, shape in expected.items():
        layer, _, leaf = name.partition(".experts.")
        if not leaf or layer not in separate:
            shapes[name] = shape
            continue
        experts, into, out = shape
        for expert in range(experts):
            if leaf == "gate_up_proj":
                shapes[f"{layer}.experts.{expert}.gate_proj.weight"] = (out // 2, into)
                shapes[f"{layer}.experts.{expert}.up_proj.weight"] = (out // 2, into)
            else:
                shapes[f"{layer}.experts.{expert}.down_proj.weight"] = (out, into)
    return shapes
