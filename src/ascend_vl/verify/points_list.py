"""Places inside Qwen3-VL in the order in which they run; see `points`. Light: no torch."""


def tower_points(depth: int, deepstack: list[int], layer: int | None = None) -> list[str]:
    """Places of the vision tower in order: to its end, or to deepstack layer `layer`."""
    if layer is None:
        return ["visual.patch_embed", *(f"visual.blocks.{i}" for i in range(depth)), "visual.merger"]
    blocks = [f"visual.blocks.{i}" for i in range(deepstack[layer] + 1)]
    return ["visual.patch_embed", *blocks, f"visual.deepstack_merger_list.{layer}"]


def text_points(layers: int) -> list[str]:
    """Places of the language model in order."""
    return ["embeddings", *(f"language_model.layers.{i}" for i in range(layers)), "language_model.norm", "logits"]
