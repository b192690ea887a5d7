"""Full attention within packed sequences, one function for each NPU operator that offers it.

All take query, key and value (T, H, D), the `Lengths` of the sequences and the scale, and return (T, H, D). The probes
run the very functions that the tower then uses.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ascend_vl.adaptations.seams.lengths import Lengths

if TYPE_CHECKING:
    import torch

    Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, Lengths, float], torch.Tensor]

WHOLE_BAND = 2147483647
APPROXIMATE = 2
# Head widths of npu_fused_infer_attention_score in TND layout (its own error text, vllm-ascend pull request 9632).
FUSED_INFER_WIDTHS = (64, 128, 192)


def unpad(q: "torch.Tensor", k: "torch.Tensor", v: "torch.Tensor", lengths: Lengths, scale: float) -> "torch.Tensor":
    """ATB self-attention, exact kernel; lengths on the host."""
    import torch
    import torch_npu

    out = torch.empty_like(q)
    torch_npu._npu_flash_attention_unpad(
        query=q,
        key=k,
        value=v,
        seq_len=lengths.tensor,
        scale_value=scale,
        num_heads=q.shape[1],
        num_kv_heads=k.shape[1],
        out=out,
    )
    return out


def unpad_approximate(
    q: "torch.Tensor", k: "torch.Tensor", v: "torch.Tensor", lengths: Lengths, scale: float
) -> "torch.Tensor":
    """The kernel that vllm-ascend 0.23 calls approximate and prefers where torch_npu has it."""
    import torch
    import torch_npu

    out = torch.empty_like(q)
    torch_npu._npu_flash_attention_unpad_v2(
        query=q,
        key=k,
        value=v,
        seq_len=lengths.tensor,
        scale_value=scale,
        num_heads=q.shape[1],
        num_kv_heads=k.shape[1],
        out=out,
        kernel_type=APPROXIMATE,
    )
    return out


def fusion(q: "torch.Tensor", k: "torch.Tensor", v: "torch.Tensor", lengths: Lengths, scale: float) -> "torch.Tensor":
    """npu_fusion_attention in TND layout; cumulative lengths."""
    import torch_npu

    ends = list(lengths.ends)
    return torch_npu.npu_fusion_attention(
        query=q,
        key=k,
        value=v,
        head_num=q.shape[1],
        input_layout="TND",
        scale=scale,
        actual_seq_qlen=ends,
        actual_seq_kvlen=ends,
    )[0]


def fused_infer(
    q: "torch.Tensor", k: "torch.Tensor", v: "torch.Tensor", lengths: Lengths, scale: float
) -> "torch.Tensor":
    """npu_fused_infer_attention_score in TND layout, no mask; cumulative lengths."""
    import torch_npu

    ends = list(lengths.ends)
    return torch_npu.npu_fused_infer_attention_score(
        query=q,
        key=k.contiguous(),
        value=v.contiguous(),
        input_layout="TND",
        num_heads=q.shape[1],
        num_key_value_heads=k.shape[1],
        scale=scale,
        sparse_mode=0,
        actual_seq_lengths=ends,
        actual_seq_lengths_kv=ends,
    )[0]


def in_groups(
    attend: "Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]",
    q: "torch.Tensor",
    k: "torch.Tensor",
    v: "torch.Tensor",
    lengths: Lengths,
) -> "torch.Tensor":
    """Run `attend` on (n, L, H, D) once for each length L: equal sequences make a batch, in no case a mask."""
    import torch

    groups = lengths.by_length
    if len(groups) == 1:
        shape = (len(lengths.values), lengths.values[0], *q.shape[1:])
        return attend(q.view(shape), k.view(shape), v.view(shape)).reshape(q.shape)
    parts = [t.split(lengths.values) for t in (q, k, v)]
    results: list[torch.Tensor] = [q[:0]] * len(lengths.values)
    for positions in groups.values():
        batch = (torch.stack([part[p] for p in positions]) for part in parts)
        for position, result in zip(positions, attend(*batch), strict=True):
            results[position] = result
    return torch.cat(results)


def prompt_flash(
    q: "torch.Tensor", k: "torch.Tensor", v: "torch.Tensor", lengths: Lengths, scale: float
) -> "torch.Tensor":
    """npu_prompt_flash_attention, which has no lengths on 310P: one call for each different length."""
    import torch_npu

    def attend(query: "torch.Tensor", key: "torch.Tensor", value: "torch.Tensor") -> "torch.Tensor":
        return torch_npu.npu_prompt_flash_attention(
            query,
            key,
            value,
            num_heads=query.shape[2],
            input_layout="BSND",
            scale_value=scale,
            pre_tokens=WHOLE_BAND,
            next_tokens=WHOLE_BAND,
        )

    return in_groups(attend, q.contiguous(), k.contiguous(), v.contiguous(), lengths)


def plain(q: "torch.Tensor", k: "torch.Tensor", v: "torch.Tensor", lengths: Lengths, scale: float) -> "torch.Tensor":
    """PyTorch's own attention, for a CPU and as the last resort."""
    from torch.nn import functional

    def attend(query: "torch.Tensor", key: "torch.Tensor", value: "torch.Tensor") -> "torch.Tensor":
        q, k, v = (t.transpose(1, 2) for t in (query, key, value))
        return functional.scaled_dot_product_attention(q, k, v, scale=scale).transpose(1, 2)

    return in_groups(attend, q, k, v, lengths)


# Name of the torch_npu function that each needs, None for PyTorch's own.
OPERATORS: "dict[str, tuple[Attention, str | None]]" = {
    "unpad": (unpad, "_npu_flash_attention_unpad"),
    "unpad-approximate": (unpad_approximate, "_npu_flash_attention_unpad_v2"),
    "fusion": (fusion, "npu_fusion_attention"),
    "fused-infer": (fused_infer, "npu_fused_infer_attention_score"),
    "prompt-flash": (prompt_flash, "npu_prompt_flash_attention"),
    "plain": (plain, None),
}

# In what order a chip's operators are tried: one call for all pictures before one call for each size.
ORDER = {
    "310P": ("unpad", "prompt-flash", "plain"),
    "910B": ("fusion", "fused-infer", "unpad", "prompt-flash", "plain"),
}


def candidates(chip: str) -> tuple[str, ...]:
    """Operators to try on `chip`, best first, as far as this torch_npu has them."""
    order = ORDER["310P" if chip.startswith("310P") else "910B"]
    return tuple(name for name in order if offered(name))


def offered(name: str) -> bool:
    """Whether this torch_npu has the operator."""
    needed = OPERATORS[name][1]
    if needed is None:
        return True
    import torch_npu

    return hasattr(torch_npu, needed)


def default_width(operator: str, head_size: int) -> int:
    """The width to pad heads to where no probe has said: what the operator is documented or reported to take."""
    if operator == "plain":
        return head_size
    if operator == "fused-infer":
        return next((width for width in FUSED_INFER_WIDTHS if width >= head_size), head_size)
    return -(-head_size // 16) * 16


def padded(
    operator: str,
    q: "torch.Tensor",
    k: "torch.Tensor",
    v: "torch.Tensor",
    lengths: Lengths,
    scale: float,
    width: int,
) -> "torch.Tensor":
    """Attention by `operator` on heads padded with zeros to `width`, cut back after.

    Zeros add nothing to q k^T and the added columns of v are cut off, so this is exact - with the scale of the
    unpadded head.
    """
    from torch.nn import functional

    attend = OPERATORS[operator][0]
    extra = width - q.shape[-1]
    if extra <= 0:
        return attend(q.contiguous(), k.contiguous(), v.contiguous(), lengths, scale)
    wide_q, wide_k, wide_v = (functional.pad(t, (0, extra)) for t in (q, k, v))
    return attend(wide_q, wide_k, wide_v, lengths, scale)[..., : q.shape[-1]]
