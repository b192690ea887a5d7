"""One operator replayed three ways on the inputs it really had: golden (float64), reference (its dtype, plain PyTorch,
on the CPU), target (what the engine gave).

PASS: target errs at most twice as much as the reference, and a unit in the last place. FAIL: more, or another dtype
or shape, or values that are not finite where golden fits the dtype. INCONCLUSIVE: no plain form of it is known here.
"""

import itertools
import re
import types
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional

from ascend_vl.language import Text
from ascend_vl.verify.tolerances import UNIT

Plain = Callable[[torch.dtype], torch.Tensor]


def kind_of(module: Any) -> str | None:
    """Which plain form stands for a module, by the names of its classes (platforms subclass the stock layers).

    A function of torch_npu has a marker that says so itself (`npu_functions`).
    """
    if marked := getattr(module, "ascend_vl_kind", None):
        return str(marked)
    names = [cls.__name__ for cls in type(module).__mro__]
    return next((kind for kind, form in _CLASSES.items() if any(re.fullmatch(form, name) for name in names)), None)


_CLASSES = {
    "mrope rotary": r"MRotaryEmbedding",
    # CastBack, ByElements and VisionAttention are our own adaptations' (seams/rotary.py, seams/vision_attention.py).
    "rotary": r"ApplyRotaryEmb|CastBack|ByElements",
    "vision attention": r"MMEncoderAttention|VisionAttention",
    "logits": r"LogitsProcessor",
    "linear": r"LinearBase|Linear|Conv3d|Conv3dLayer",
    "layer norm": r"LayerNorm",
    "rms norm": r"RMSNorm",
    "silu and multiply": r"SiluAndMul",
    "gelu": r".*GELU.*|.*Gelu.*",
    "text attention": r"Attention",
}


def judge(
    name: str, module: Any, call: dict[str, Any], weights: Mapping[str, torch.Tensor], config: Any
) -> dict[str, Any]:
    """The verdict on one recorded call: module, operator, inputs, verdict, reference_error, target_error, why.

    `call` is {"args", "kwargs", "output"} with CPU tensors, `weights` the module's parameters from the checkpoint in
    the model's dtype, `config` the checkpoint's config.
    """
    kind = kind_of(module)
    target = first(call["output"])
    record = {
        "module": name,
        "kind": kind,
        "operator": f"{kind or 'unknown'} ({type(module).__name__})",
        "inputs": described(call),
        "output": f"{_dtype(target)}{list(target.shape)}",
    }
    plain = _plain(kind, module, call, weights, config)
    if plain is None:
        why = Text("no plain form of this operator is known here", "此处没有该算子的朴素写法")
        return {**record, **_said("INCONCLUSIVE", why)}
    with torch.inference_mode():
        golden = plain(torch.float64)
        reference = plain(target.dtype)
    return {**record, **weigh(golden, reference, target, first_input(call))}


def weigh(
    golden: torch.Tensor, reference: torch.Tensor, target: torch.Tensor, entering: torch.Tensor | None
) -> dict[str, Any]:
    """Dtype, shape and finiteness first, then the errors, relative in L2."""
    if target.numel() != golden.numel():
        shapes = list(target.shape), list(golden.shape)
        why = Text(f"shape {shapes[0]}, expected {shapes[1]}", f"形状 {shapes[0]}，应为 {shapes[1]}")
        return _said("FAIL", why)
    if entering is not None and entering.is_floating_point() and target.dtype != entering.dtype:
        given, came = _dtype(entering), _dtype(target)
        return _said("FAIL", Text(f"dtype {came} from {given} inputs", f"输入 {given}，输出类型 {came}"))
    exact, ours, theirs = golden.flatten(), target.double().flatten(), reference.double().flatten()
    limit = torch.finfo(target.dtype).max
    if not torch.isfinite(ours).all():
        if exact.abs().max() > limit:
            largest, kind = float(exact.abs().max()), _dtype(target)
            why = Text(
                f"overflow: the exact value {largest:.4g} is beyond {kind} ({limit:.5g})",
                f"溢出：精确值 {largest:.4g} 超出 {kind}（{limit:.5g}）",
            )
        else:
            why = Text("not finite where the exact value is", "精确值有限而结果非有限")
        return {**_said("FAIL", why), "reference_error": None, "target_error": None}
    norm = float(exact.norm()) or 1.0
    errors = {
        "reference_error": _finite((theirs - exact).norm() / norm),
        "target_error": _finite((ours - exact).norm() / norm),
    }
    bound = 2 * errors["reference_error"] + UNIT[_dtype(target)]
    good = errors["target_error"] <= bound
    ours_off, theirs_off = errors["target_error"], errors["reference_error"]
    rule = Text(
        f"target {ours_off:.2e}, reference {theirs_off:.2e}, limit {bound:.2e}",
        f"被测 {ours_off:.2e}，参考 {theirs_off:.2e}，限值 {bound:.2e}",
    )
    return {**errors, "limit": bound, **_said("PASS" if good else "FAIL", rule)}


def _said(verdict: str, why: Text) -> dict[str, Any]:
    return {"verdict": verdict, "why": why.en, "why_zh": why.zh}


def _finite(value: Any) -> float:
    number = float(value)
    return number if number == number else float("inf")


def _plain(
    kind: str | None, module: Any, call: dict[str, Any], weights: Mapping[str, torch.Tensor], config: Any
) -> Plain | None:
    makers: dict[str, Callable[..., Plain | None]] = {
        "linear": _linear,
        "layer norm": _layer_norm,
        "rms norm": _rms_norm,
        "rotary": _rotary,
        "mrope rotary": _mrope,
        "vision attention": _vision_attention,
        "text attention": _text_attention,
        "silu and multiply": _silu_and_mul,
        "gelu": _gelu,
        "logits": _logits,
    }
    return makers[kind](module, call, weights, config) if kind in makers else None


def _linear(module: Any, call: dict[str, Any], weights: Mapping[str, torch.Tensor], config: Any) -> Plain | None:
    entering = first_input(call)
    weight, bias = weights.get("weight"), weights.get("bias")
    # A layer that leaves the sum over ranks to others gives a part that no weight alone explains.
    partial = getattr(module, "tp_size", 1) > 1 and not getattr(module, "reduce_results", True)
    if weight is None or entering is None or partial:
        return None
    flat = weight.reshape(weight.shape[0], -1)
    if entering.shape[-1] != flat.shape[1]:
        entering = entering.reshape(-1, flat.shape[1])

    def plain(dtype: torch.dtype) -> torch.Tensor:
        return functional.linear(entering.to(dtype), flat.to(dtype), None if bias is None else bias.to(dtype))

    return plain


def _layer_norm(module: Any, call: dict[str, Any], weights: Mapping[str, torch.Tensor], config: Any) -> Plain | None:
    entering = first_input(call)
    if entering is None or "weight" not in weights:
        return None

    def plain(dtype: torch.dtype) -> torch.Tensor:
        bias = weights.get("bias")
        weight = weights["weight"].to(dtype)
        shift = None if bias is None else bias.to(dtype)
        return functional.layer_norm(entering.to(dtype), (entering.shape[-1],), weight, shift, 1e-6)

    return plain


def _rms_norm(module: Any, call: dict[str, Any], weights: Mapping[str, torch.Tensor], config: Any) -> Plain | None:
    tensors = floats(call)
    if not tensors or "weight" not in weights:
        return None
    epsilon = config["text_config"].get("rms_norm_eps", 1e-6)

    def plain(dtype: torch.dtype) -> torch.Tensor:
        # As the models define it: squared mean in float32 at least, the residual added first.
        summed = sum(tensor.to(dtype) for tensor in tensors[1:2]) + tensors[0].to(dtype)
        wide = summed.to(torch.promote_types(dtype, torch.float32))
        normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + epsilon)
        return normed.to(dtype) * weights["weight"].to(dtype)

    return plain


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary embedding of halves (Su et al. 2021): x (..., rows, heads, width), cos and sin (rows, width / 2)."""
    a, b = x.chunk(2, -1)
    c, s = cos.unsqueeze(-2), sin.unsqueeze(-2)
    return torch.cat((a * c - b * s, b * c + a * s), -1)


def _rotary(module: Any, call: dict[str, Any], weights: Mapping[str, torch.Tensor], config: Any) -> Plain | None:
    tensors = floats(call)
    if len(tensors) != 3 or not getattr(module, "is_neox_style", True):
        return None
    x, cos, sin = tensors
    if cos.shape[-1] == x.shape[-1]:
        # The operator's own form: both halves of a head's width, one row a position.
        half = x.shape[-1] // 2
        cos, sin = (table[..., :half].reshape(-1, half) for table in (cos, sin))

    def plain(dtype: torch.dtype) -> torch.Tensor:
        return rotate(x.to(dtype), cos.to(dtype), sin.to(dtype))

    return plain


def mrope_angles(positions: torch.Tensor, width: int, theta: float, section: list[int]) -> torch.Tensor:
    """Angles (rows, width / 2), float64: Qwen3-VL's interleaved mrope, t h w t h w ... as long as h and w last, then t.

    `positions` is (3, rows) or (rows,); `section` the pairs for t, h, w.
    """
    inverse = theta ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    if positions.ndim == 1:
        return positions.double()[:, None] * inverse
    angles = positions.double()[:, :, None] * inverse
    mixed = angles[0].clone()
    for axis in (1, 2):
        chosen = slice(axis, 3 * section[axis], 3)
        mixed[:, chosen] = angles[axis][:, chosen]
    return mixed


def _mrope(module: Any, call: dict[str, Any], weights: Mapping[str, torch.Tensor], config: Any) -> Plain | None:
    values = [v for v in [*call["args"], *call["kwargs"].values()] if isinstance(v, torch.Tensor)]
    if len(values) < 2 or values[0].is_floating_point():
        return None
    positions, query = values[0], values[1]
    text = config["text_config"]
    rope = text.get("rope_parameters") or text.get("rope_scaling") or {}
    theta, section = rope.get("rope_theta", text.get("rope_theta")), rope.get("mrope_section")
    width = text["head_dim"]
    if theta is None or section is None:
        return None
    angles = mrope_angles(positions, width, float(theta), list(section))

    def plain(dtype: torch.dtype) -> torch.Tensor:
        split = query.reshape(query.shape[0], -1, width).to(dtype)
        return rotate(split, angles.cos().to(dtype), angles.sin().to(dtype)).reshape(query.shape)

    return plain


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: bool) -> torch.Tensor:
    """softmax(q k^T * scale) v for (rows, heads, width), written out; fewer key heads are repeated.

    With more keys than queries, `causal` takes the queries for the last rows.
    """
    repeat = q.shape[1] // k.shape[1]
    q, k, v = (t.transpose(0, 1) for t in (q, k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)))
    scores = (q @ k.transpose(-1, -2)) * scale
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1 + scores.shape[-1] - scores.shape[-2])
        scores = scores.masked_fill(later, float("-inf"))
    wide = torch.softmax(scores, -1, dtype=torch.promote_types(scores.dtype, torch.float32))
    return (wide.to(v.dtype) @ v).transpose(0, 1)


def _vision_attention(
    module: Any, call: dict[str, Any], weights: Mapping[str, torch.Tensor], config: Any
) -> Plain | None:
    named = {**dict(zip(("query", "key", "value", "cu_seqlens"), call["args"], strict=False)), **call["kwargs"]}
    edges = named.get("cu_seqlens", named.get("seq_len"))
    vision = config["vision_config"]
    width = vision["hidden_size"] // vision["num_heads"]
    q, k, v = (
        named[key].reshape(-1, named[key].shape[-2] if named[key].shape[-1] == width else 1, width)
        for key in ("query", "key", "value")
    )
    if q.shape[1] == 1:
        q, k, v = (named[key].reshape(-1, named[key].shape[-1] // width, width) for key in ("query", "key", "value"))
    if edges is None:
        return None
    # The pictures' own borders where this call has all of them; else what the operator was told, offsets or lengths.
    told = edges.tolist() if edges[-1] == q.shape[0] else [0, *edges.cumsum(0).tolist()]
    known = config.get("borders") or [0]
    bounds = known if known[-1] == q.shape[0] else told

    def plain(dtype: torch.dtype) -> torch.Tensor:
        pieces = [
            attention(q[start:end].to(dtype), k[start:end].to(dtype), v[start:end].to(dtype), width**-0.5, causal=False)
            for start, end in itertools.pairwise(bounds)
            if end > start
        ]
        return torch.cat(pieces)

    return plain


def _text_attention(
    module: Any, call: dict[str, Any], weights: Mapping[str, torch.Tensor], config: Any
) -> Plain | None:
    tensors = floats(call)
    if len(tensors) < 3:
        return None
    width = config["text_config"]["head_dim"]
    q, k, v = (t.reshape(t.shape[0], -1, width) for t in tensors[:3])

    def plain(dtype: torch.dtype) -> torch.Tensor:
        return attention(q.to(dtype), k.to(dtype), v.to(dtype), width**-0.5, causal=True)

    return plain


def _silu_and_mul(module: Any, call: dict[str, Any], weights: Mapping[str, torch.Tensor], config: Any) -> Plain | None:
    entering = first_input(call)
    if entering is None:
        return None

    def plain(dtype: torch.dtype) -> torch.Tensor:
        gate, up = entering.to(dtype).chunk(2, -1)
        return functional.silu(gate) * up

    return plain


def _gelu(module: Any, call: dict[str, Any], weights: Mapping[str, torch.Tensor], config: Any) -> Plain | None:
    entering = first_input(call)
    if entering is None:
        return None
    exact = type(module).__name__ == "GELU" and getattr(module, "approximate", "none") == "none"

    def plain(dtype: torch.dtype) -> torch.Tensor:
        return functional.gelu(entering.to(dtype), approximate="none" if exact else "tanh")

    return plain


def _logits(module: Any, call: dict[str, Any], weights: Mapping[str, torch.Tensor], config: Any) -> Plain | None:
    tensors = floats(call)
    if not tensors or "weight" not in weights:
        return None
    hidden = tensors[-1]

    def plain(dtype: torch.dtype) -> torch.Tensor:
        return functional.linear(hidden.to(dtype), weights["weight"].to(dtype))

    return plain


def by_kind(kind: str, recorded: dict[str, Any]) -> Plain:
    """The plain form for a recorded call, as `replay` saved it. Raises ValueError when there is none."""
    module = types.SimpleNamespace(is_neox_style=True, approximate="tanh")
    plain = _plain(kind, module, recorded, recorded["weights"], recorded["config"])
    if plain is None:
        raise ValueError(f"no plain form for {kind!r}")
    return plain


def floats(call: dict[str, Any]) -> list[torch.Tensor]:
    """The floating-point tensors among a call's arguments, in order."""
    values = [*call["args"], *call["kwargs"].values()]
    return [value for value in values if isinstance(value, torch.Tensor) and value.is_floating_point()]


def first_input(call: dict[str, Any]) -> torch.Tensor | None:
    """The first floating-point tensor among a call's arguments."""
    found = floats(call)
    return found[0] if found else None


def first(output: Any) -> torch.Tensor:
    """The first tensor of an output."""
    return output if isinstance(output, torch.Tensor) else next(v for v in output if isinstance(v, torch.Tensor))


def described(call: dict[str, Any]) -> list[str]:
    """The tensors of a call, as dtype[shape]."""
    named = [(str(i), value) for i, value in enumerate(call["args"])] + list(call["kwargs"].items())
    return [f"{name}: {_dtype(v)}{list(v.shape)}" for name, v in named if isinstance(v, torch.Tensor)]


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
