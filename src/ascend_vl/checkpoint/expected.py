"""The tensors a checkpoint must hold, computed from its config: names and shapes of Qwen3-VL, dense and MoE.

Names are those of the published files, each of q, k, v, gate and up by itself (a loader that fuses them cannot see
that one is missing). Source: `Qwen3VLForConditionalGeneration` and `Qwen3VLMoeForConditionalGeneration` of Transformers
4.57-5.19; the published expert weights are stored input-major (`gate_up_proj`: experts, hidden, 2 x intermediate).
"""

from collections.abc import Iterator

from ascend_vl.checkpoint.shapes import TextShape, VisionShape

Shapes = dict[str, tuple[int, ...]]

LM_HEAD = "lm_head.weight"
HEAD_SIGNATURE = "model.final_layer2.linear.weight"
# Per edge: a picture patch of the HiDream-O1 head is 32 x 32 pixels of 3 channels.
HEAD_PATCH = 3 * 32 * 32
HEAD_TIMESTEP = 256


def head_shapes(hidden: int) -> Shapes:
    """The nine tensors of HiDream-O1's pixel head for text width `hidden`; no `proj1.bias` exists."""
    bottleneck = hidden // 4
    return {
        "model.x_embedder.proj1.weight": (bottleneck, HEAD_PATCH),
        "model.x_embedder.proj2.weight": (hidden, bottleneck),
        "model.x_embedder.proj2.bias": (hidden,),
        "model.t_embedder1.mlp.0.weight": (hidden, HEAD_TIMESTEP),
        "model.t_embedder1.mlp.0.bias": (hidden,),
        "model.t_embedder1.mlp.2.weight": (hidden, hidden),
        "model.t_embedder1.mlp.2.bias": (hidden,),
        HEAD_SIGNATURE: (HEAD_PATCH, hidden),
        "model.final_layer2.linear.bias": (HEAD_PATCH,),
    }


HEAD_TENSORS = tuple(head_shapes(4))


def expected_shapes(text: TextShape, vision: VisionShape) -> Shapes:
    """Every tensor of the backbone without `lm_head.weight` (which depends on tying) and without the pixel head."""
    return dict(_text(text)) | dict(_vision(vision))


def _linear(name: str, out: int, into: int, bias: bool = True) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", (out, into)
    if bias:
        yield f"{name}.bias", (out,)


def _norm(name: str, width: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", (width,)
    yield f"{name}.bias", (width,)


def _text(text: TextShape) -> Iterator[tuple[str, tuple[int, ...]]]:
    root = "model.language_model"
    yield f"{root}.embed_tokens.weight", (text.vocab, text.hidden)
    yield f"{root}.norm.weight", (text.hidden,)
    queries, keys = text.heads * text.head_dim, text.kv_heads * text.head_dim
    for index in range(text.layers):
        layer = f"{root}.layers.{index}"
        yield f"{layer}.input_layernorm.weight", (text.hidden,)
        yield f"{layer}.post_attention_layernorm.weight", (text.hidden,)
        yield from _linear(f"{layer}.self_attn.q_proj", queries, text.hidden, text.attention_bias)
        yield from _linear(f"{layer}.self_attn.k_proj", keys, text.hidden, text.attention_bias)
        yield from _linear(f"{layer}.self_attn.v_proj", keys, text.hidden, text.attention_bias)
        yield from _linear(f"{layer}.self_attn.o_proj", text.hidden, queries, text.attention_bias)
        yield f"{layer}.self_attn.q_norm.weight", (text.head_dim,)
        yield f"{layer}.self_attn.k_norm.weight", (text.head_dim,)
        if text.is_sparse(index):
            yield f"{layer}.mlp.gate.weight", (text.experts, text.hidden)
            yield f"{layer}.mlp.experts.gate_up_proj", (text.experts, text.hidden, 2 * text.moe_intermediate)
            yield f"{layer}.mlp.experts.down_proj", (text.experts, text.moe_intermediate, text.hidden)
        else:
            yield f"{layer}.mlp.gate_proj.weight", (text.intermediate, text.hidden)
            yield f"{layer}.mlp.up_proj.weight", (text.intermediate, text.hidden)
            yield f"{layer}.mlp.down_proj.weight", (text.hidden, text.intermediate)


def _vision(vision: VisionShape) -> Iterator[tuple[str, tuple[int, ...]]]:
    root, width = "model.visual", vision.hidden
    patch = (vision.channels, vision.temporal_patch, vision.patch, vision.patch)
    yield f"{root}.patch_embed.proj.weight", (width, *patch)
    yield f"{root}.patch_embed.proj.bias", (width,)
    yield f"{root}.pos_embed.weight", (vision.position_embeddings, width)
    for index in range(vision.depth):
        block = f"{root}.blocks.{index}"
        yield from _norm(f"{block}.norm1", width)
        yield from _norm(f"{block}.norm2", width)
        yield from _linear(f"{block}.attn.qkv", 3 * width, width)
        yield from _linear(f"{block}.attn.proj", width, width)
        yield from _linear(f"{block}.mlp.linear_fc1", vision.intermediate, width)
        yield from _linear(f"{block}.mlp.linear_fc2", width, vision.intermediate)
    merged = width * vision.merge**2
    yield from _merger(f"{root}.merger", width, merged, vision.out_hidden)
    for index in range(len(vision.deepstack)):
        # The deepstack mergers normalise after the shuffle, the last one before it.
        yield from _merger(f"{root}.deepstack_merger_list.{index}", merged, merged, vision.out_hidden)


def _merger(name: str, norm: int, merged: int, out: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield from _norm(f"{name}.norm", norm)
    yield from _linear(f"{name}.linear_fc1", merged, merged)
    yield from _linear(f"{name}.linear_fc2", out, merged)
