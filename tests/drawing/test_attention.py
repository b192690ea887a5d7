from types import SimpleNamespace

import pytest
import torch

from ascend_vl.drawing import attention

CPU = torch.device("cpu")
SHAPES = [(4, 2, 16), (8, 8, 24), (6, 1, 128)]


@pytest.mark.parametrize(("heads", "kv_heads", "width"), SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["torch", "blocks"])
def test_it_is_attention_over_all_keys(name: str, dtype: torch.dtype, heads: int, kv_heads: int, width: int) -> None:
    found = attention.error_of(attention.WAYS[name], CPU, heads, kv_heads, width, dtype)
    assert found <= attention.ALLOWED * torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_an_operator_that_hides_later_keys_is_seen(dtype: torch.dtype) -> None:
    def banded(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
        return attention.blocks_full(q, k[: len(q)], v[: len(q)], scale)

    wrong = attention.Attend("wrong", banded, attention.blocks_causal)
    assert attention.error_of(wrong, CPU, 4, 2, 128, dtype) > attention.ALLOWED * torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_causal_rows_see_the_keys_up_to_themselves(dtype: torch.dtype) -> None:
    q, k, v = (torch.randn(50, heads, 16).to(dtype) for heads in (4, 2, 2))
    ways = [way.causal(q, k, v, 0.25) for way in (attention.WAYS["torch"], attention.WAYS["blocks"])]
    rows = [attention.blocks_full(q[i : i + 1], k[: i + 1], v[: i + 1], 0.25) for i in range(50)]
    for found in ways:
        torch.testing.assert_close(found, torch.cat(rows), atol=2e-3 if dtype == torch.float16 else 1e-5, rtol=0)


@pytest.mark.parametrize(
    ("chip", "error", "chosen"),
    [
        ("Ascend910B3", 0.0, "fused"),
        ("Ascend310P3", 0.0, "prompt"),
        ("Ascend310P3", 0.9, "blocks"),
        ("Ascend910B3", RuntimeError("EZ1001"), "blocks"),
    ],
)
def test_an_operator_that_is_wrong_here_gives_way_to_blocks(
    monkeypatch: pytest.MonkeyPatch, chip: str, error: object, chosen: str
) -> None:
    def error_of(*_: object) -> object:
        if isinstance(error, Exception):
            raise error
        return error

    monkeypatch.delenv(attention.CHOICE, raising=False)
    monkeypatch.setattr(torch, "npu", SimpleNamespace(get_device_name=lambda device: chip), raising=False)
    monkeypatch.setattr(attention, "error_of", error_of)
    assert attention.choose(SimpleNamespace(type="npu"), 8, 2, 128, torch.float16).name == chosen  # type: ignore[arg-type]
    monkeypatch.setenv("ASCEND_VL_DRAWING_ATTENTION", "torch")
    assert attention.choose(SimpleNamespace(type="npu"), 8, 2, 128, torch.float16).name == "torch"  # type: ignore[arg-type]
