"""Questions that only a real chip can answer, besides those that decide an adaptation. Importing this imports no
torch.
"""

from ascend_vl.adaptations.record import Finding
from ascend_vl.language import Text
from ascend_vl.probes.record import Note, Probe
from ascend_vl.probes.shapes import LARGE_PICTURE, Shapes

# Width of the vision MLP of Qwen3-VL-8B, and what float16 holds.
INNER, FLOAT16_MAX = 4304, 65504.0
APPROXIMATE, EXACT = 2, 0


def prompt_flash_unequal(shapes: Shapes, note: Note) -> Finding:
    """Does npu_prompt_flash_attention take per-picture lengths here? Its documentation says not on 310P."""
    import torch
    import torch_npu

    from ascend_vl.adaptations.seams.attention_operators import WHOLE_BAND
    from ascend_vl.probes import device, judge, references

    npu, dtype, pictures = device.prepared(), getattr(torch, shapes.dtype), (48, 32)
    width, longest = 80, max(pictures)
    heads = references.peaked_heads(sum(pictures), shapes.vision_heads, width, dtype)
    batch = [torch.nn.utils.rnn.pad_sequence(t.split(pictures), batch_first=True).to(npu) for t in heads]
    try:
        out = device.fetched(
            torch_npu.npu_prompt_flash_attention(
                *batch,
                num_heads=shapes.vision_heads,
                input_layout="BSND",
                scale_value=width**-0.5,
                pre_tokens=WHOLE_BAND,
                next_tokens=WHOLE_BAND,
                actual_seq_lengths=list(pictures),
                actual_seq_lengths_kv=list(pictures),
            )
        )
    except RuntimeError as error:
        return Finding(True, Text("per-picture lengths are refused", "不支持逐图长度"), {"error": str(error)[:500]})
    kept = torch.cat([out[i, :n] for i, n in enumerate(pictures)])
    golden, reference = (references.packed_attention(*heads, pictures, width**-0.5, d) for d in (torch.float64, dtype))
    verdict = judge.judge(golden, reference, kept)
    why = Text(
        f"per-picture lengths up to {longest}: {verdict.reason}", f"逐图长度（最长 {longest}）：{verdict.reason}"
    )
    return Finding(not verdict.right, why, verdict.numbers())


def unpad_kernels(shapes: Shapes, note: Note) -> Finding:
    """How exact are the kernels of _npu_flash_attention_unpad_v2 at the size of a 1280x720 picture?"""
    import torch
    import torch_npu

    from ascend_vl.probes import device, judge, references

    if not hasattr(torch_npu, "_npu_flash_attention_unpad_v2"):
        return Finding(None, Text("this torch_npu does not have the operator", "该 torch_npu 没有此算子"))
    npu, dtype, width = device.prepared(), getattr(torch, shapes.dtype), 80
    q, k, v = references.peaked_heads(LARGE_PICTURE, 2, width, dtype)
    golden, reference = (
        references.packed_attention(q, k, v, (LARGE_PICTURE,), width**-0.5, d) for d in (torch.float64, dtype)
    )
    verdicts = {}
    for kernel in (EXACT, APPROXIMATE):
        out = torch.empty_like(q, device=npu)
        torch_npu._npu_flash_attention_unpad_v2(
            query=q.to(npu),
            key=k.to(npu),
            value=v.to(npu),
            seq_len=torch.tensor([LARGE_PICTURE], dtype=torch.int32),
            scale_value=width**-0.5,
            num_heads=2,
            num_kv_heads=2,
            out=out,
            kernel_type=kernel,
        )
        verdicts[kernel] = judge.judge(golden, reference, device.fetched(out))
        note(**{f"kernel_type_{kernel}": verdicts[kernel].target_error})
    wrong = [kernel for kernel, verdict in verdicts.items() if not verdict.right]
    text = "; ".join(f"kernel {kernel}: {verdict.reason}" for kernel, verdict in verdicts.items())
    return Finding(bool(wrong), Text(text, text))


def cache_layouts(shapes: Shapes, note: Note) -> Finding:
    """Does decoding read a KV cache that was left in plain format as it reads one in NZ format? (310P; 0.11 leaves
    it.)
    """
    import torch
    import torch_npu

    from ascend_vl.probes import device, judge

    npu, heads, width, block, tokens = device.prepared(), 2, 128, 128, 200
    generator = torch.Generator().manual_seed(9)
    q, k, v = (torch.randn(n, heads, width, generator=generator).half() for n in (1, tokens, tokens))
    weights = torch.softmax(torch.einsum("qhd,khd->hqk", q.double(), k.double()) * width**-0.5, -1)
    want = torch.einsum("hqk,khd->qhd", weights, v.double())
    errors = {}
    for name, layout in (("nd", 2), ("nz", 29)):
        shape = (2, heads * width // 16, block, 16)
        if not device.chip_name().startswith("310P"):
            shape, layout = (2, block, heads, width), 2
        keys, values = (torch_npu.npu_format_cast(torch.zeros(shape).half().to(npu), layout) for _ in range(2))
        slots = torch.arange(tokens, dtype=torch.int32).to(npu)
        torch_npu._npu_reshape_and_cache(
            key=k.to(npu), value=v.to(npu), key_cache=keys, value_cache=values, slot_indices=slots
        )
        out = torch.empty_like(q, device=npu)
        torch_npu._npu_paged_attention(
            query=q.to(npu),
            key_cache=keys,
            value_cache=values,
            num_kv_heads=heads,
            num_heads=heads,
            scale_value=width**-0.5,
            block_table=torch.tensor([[0, 1]], dtype=torch.int32).to(npu),
            context_lens=torch.tensor([tokens], dtype=torch.int32).to(npu),
            out=out,
        )
        errors[name] = judge.relative(device.fetched(out), want)
        note(**errors)
    bad = [name for name, error in errors.items() if error > 5e-3]
    text = ", ".join(f"{name} {error:.1e}" for name, error in errors.items())
    return Finding(bool(bad), Text(f"decode error by cache format: {text}", f"不同缓存格式的解码误差：{text}"), errors)


def float16_range(shapes: Shapes, note: Note) -> Finding:
    """What does a product beyond 65504 give: infinity, or the largest float16 silently?"""
    import torch

    from ascend_vl.probes import device

    npu = device.prepared()
    row = torch.full((1, INNER), 8.0, dtype=torch.float16)
    product = device.fetched(row.to(npu) @ row.T.contiguous().to(npu))
    value = float(product)
    note(product=value)
    if value == FLOAT16_MAX:
        return Finding(True, Text("an overflow is clamped silently", "溢出被静默截断为最大值"))
    return Finding(False, Text("an overflow gives infinity", "溢出得到无穷大"))


QUESTIONS: dict[str, Probe] = {
    probe.id: probe
    for probe in (
        Probe(
            "prompt-flash-lengths",
            Text("lengths of prompt flash attention", "PFA 的逐图长度"),
            prompt_flash_unequal,
            __name__,
        ),
        Probe("unpad-kernels", Text("exactness of the unpad kernels", "unpad 各内核的精度"), unpad_kernels, __name__),
        Probe("cache-layouts", Text("plain and NZ KV cache", "ND 与 NZ 格式的 KV 缓存"), cache_layouts, __name__),
        Probe("float16-range", Text("overflow in float16", "float16 溢出"), float16_range, __name__),
    )
}
