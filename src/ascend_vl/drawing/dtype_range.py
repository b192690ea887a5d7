"""Does float16 hold this checkpoint's activations? Looked at in each worker before the model runs.

The remedy is `models.residual_scale`; what it cannot cure is reported, and ends a drawing as `drawing-not-finite`.
"""

import logging
import math
from typing import Any, TypedDict

import numpy as np
import torch

from ascend_vl.drawing.forward import Decoder
from ascend_vl.drawing.job import Job
from ascend_vl.drawing.ranks import Ranks
from ascend_vl.drawing.recipes import DrawingConfig
from ascend_vl.drawing.sequence import Branch, patch_positions, text_positions
from ascend_vl.drawing.session import NotFinite, Session
from ascend_vl.models import residual_scale

logger = logging.getLogger("vllm.plugins.ascend_vl")

# Other prompts, pictures and sizes go beyond what one small drawing shows.
MARGIN = 4.0
LARGEST_SCALE = 4096
# After infinities nothing says how much is missing.
STRIDE = 16
SIDE, STEPS, WORDS, CONTROL = 2, 2, 48, 12
FOUND = "ascend_vl_dtype_range"


class Found(TypedDict):
    """`largest` absolute values by place, with the stream `scale` times smaller; `safe`: within the dtype's range by
    MARGIN, None when nobody could look."""

    safe: bool | None
    scale: int
    largest: dict[str, float]


def watch(model: Any) -> None:
    """Have a float16 model settled before its first forward pass, which comes before anything is compiled."""
    if not _is_half(model):
        return

    def before(module: Any, given: Any) -> None:
        handle.remove()
        found(module)

    handle = model.register_forward_pre_hook(before)


def found(model: Any) -> Found | None:
    """What there is to tell of a float16 model, settled now if it has not run yet; None for other dtypes."""
    if not _is_half(model):
        return None
    known: Found | None = getattr(model, FOUND, None)
    if known is not None:
        return known
    try:
        result = settle(model)
    except Exception as error:
        logger.warning("ascend_vl: the range of float16 could not be looked at: %s", error)
        result = Found(safe=None, scale=residual_scale.scale_of(model), largest={})
    object.__setattr__(model, FOUND, result)
    return result


def _is_half(model: Any) -> bool:
    return bool(model.language_model.model.norm.weight.dtype == torch.float16)


@torch.inference_mode()
def settle(model: Any) -> Found:
    """Look, and shrink the residual stream until its largest value is within the range by MARGIN, if it can be."""
    limit = torch.finfo(torch.float16).max / MARGIN
    largest = look(model)
    while (most := max(largest.values())) > limit and residual_scale.scale_of(model) < LARGEST_SCALE:
        by = 2 ** math.ceil(math.log2(most / limit)) if math.isfinite(most) else STRIDE
        residual_scale.shrink(model, min(by, LARGEST_SCALE // residual_scale.scale_of(model)))
        largest = look(model)
    result = Found(safe=most <= limit, scale=residual_scale.scale_of(model), largest=largest)
    if result["scale"] > 1:
        logger.info("ascend_vl: float16: residual stream %d times smaller, results the same", result["scale"])
    if not result["safe"]:
        logger.warning("ascend_vl: float16 does not hold this checkpoint's activations: %s", largest)
    return result


def look(model: Any) -> dict[str, float]:
    """The largest absolute values of the stream and of what is added to it, over all ranks, in a small drawing.

    Raises on all ranks when one of them fails.
    """
    from vllm.forward_context import override_forward_context

    device = next(model.parameters()).device
    ranks = Ranks()
    decoder = Decoder(model, device, ranks)
    decoder.peaks = dict.fromkeys(("attention", "mlp", "residual", "prediction"), 0.0)
    # The caller's context describes rows that are not ours.
    with override_forward_context(None):
        session = Session(_job(model.config.to_dict()), model, decoder, device)
        try:
            while session.phase != "done":
                session.advance(1_000_000)
            failure = ranks.failure
        except Exception as error:
            failure = error
    if isinstance(failure, NotFinite):
        decoder.peaks["prediction"], failure = math.inf, None
    if ranks.most(float(failure is not None)):
        raise failure or RuntimeError("another rank failed")
    return {place: ranks.most(math.inf if math.isnan(x) else x) for place, x in decoder.peaks.items()}


def _job(config: dict[str, Any]) -> Job:
    """Control tokens, words from all over the vocabulary, and a few noisy patches."""
    drawing = DrawingConfig.from_checkpoint(config)
    constants, end = drawing.constants, int(config["image_token_id"])
    control = np.arange(max(0, end - CONTROL), end)
    words = np.linspace(0, int(config["text_config"]["vocab_size"]) - 1, WORDS).astype(np.int64)
    ids = np.concatenate([control, words, [constants.tms_token_id or 0]]).astype(np.int64)
    text = text_positions(list(ids), -1, [])
    positions = np.concatenate([text, patch_positions((SIDE, SIDE), [], constants.fix_point)], axis=1)
    patches = np.arange(positions.shape[1]) >= len(ids)
    branch = Branch(ids, positions, (np.arange(positions.shape[1]) >= len(ids) - 1).astype(np.int64), patches)
    recipe = drawing.recipe(drawing.default_recipe, 0, steps=STEPS, guidance=1.0)
    side = SIDE * constants.patch_size
    return Job(side, side, 0, recipe, constants.patch_size, constants.t_eps, (branch,))
