from types import SimpleNamespace
from typing import Any

import bare
import pytest
import torch

from ascend_vl.drawing.rotary import Rotary, turned

pytestmark = pytest.mark.engine


def test_rows_turn_as_vllms_own_module_turns_them(worker: bare.BareWorker) -> None:
    decoder = worker._drawing().decoder
    module = decoder.layers[0].self_attn.rotary_emb
    positions = torch.randint(0, 4500, (3, 37))
    q, k = torch.randn(37, decoder.heads, decoder.width), torch.randn(37, decoder.kv_heads, decoder.width)
    theirs = module.forward_native(positions, q.reshape(37, -1).clone(), k.reshape(37, -1).clone())
    turns = decoder.rotary.turns(positions, torch.float32)
    for ours, other in zip((turned(q, turns), turned(k, turns)), theirs, strict=True):
        torch.testing.assert_close(ours.reshape(37, -1), other, atol=1e-5, rtol=0)


def test_the_module_itself_is_never_asked(
    worker: bare.BareWorker, tokenizer: Any, image_processor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On 310P it would answer for the positions of chat's last step."""
    import oracle

    module = worker._drawing().decoder.layers[0].self_attn.rotary_emb
    monkeypatch.setattr(module, "forward", lambda *_: pytest.fail("asked"))
    oracle.check(bare.draw(worker, oracle.job("t2i", tokenizer, image_processor)), "t2i")


@pytest.mark.parametrize("changes", [{"mrope_section": None}, {"mrope_interleaved": False}, {"rotary_dim": 64}])
def test_another_kind_is_refused(changes: dict[str, Any]) -> None:
    kind = {"mrope_section": [24, 20, 20], "mrope_interleaved": True, "rotary_dim": 128, "head_size": 128, "base": 5e6}
    Rotary(SimpleNamespace(**kind), torch.device("cpu"))
    with pytest.raises(ValueError, match="not Qwen3-VL's"):
        Rotary(SimpleNamespace(**{**kind, **changes}), torch.device("cpu"))
