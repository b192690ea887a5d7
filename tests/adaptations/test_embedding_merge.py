"""The merge without a boolean assignment: equal to the loop, strict about counts, rebound wherever the name is held."""

import sys
import types

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ascend_vl.adaptations import registry
from ascend_vl.adaptations.phase import phase_of
from ascend_vl.adaptations.seams import functions, merge
from ascend_vl.probes.references import merged


class NoBooleanAssignment(TorchDispatchMode):
    """Raises where an NPU with the fault would: index_put_ through a boolean mask."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if "index_put" in str(func) and any(i is not None and i.dtype == torch.bool for i in args[1]):
            raise RuntimeError("error code is 507018, kernelName=IndexPut")
        return func(*args, **(kwargs or {}))


def by_mask(inputs_embeds, multimodal_embeddings, is_multimodal):
    """vLLM's merge since 0.20."""
    inputs_embeds[is_multimodal] = merge.flat(multimodal_embeddings).to(inputs_embeds.dtype)
    return inputs_embeds


def before_011(inputs_embeds, is_multimodal, multimodal_embeddings):
    """vLLM 0.11's order of arguments."""
    return by_mask(inputs_embeds, multimodal_embeddings, is_multimodal)


@pytest.fixture
def case() -> tuple[torch.Tensor, list[torch.Tensor], torch.Tensor]:
    mask = torch.zeros(171, dtype=torch.bool)
    mask[5:85] = mask[90:170] = True
    return torch.randn(171, 64).half(), [torch.randn(80, 64), torch.randn(80, 64)], mask


@pytest.mark.parametrize("method", list(merge.METHODS))
def test_equal_bit_for_bit_to_the_loop_without_a_boolean_assignment(case, method):
    embeds, pictures, mask = case
    want = merged(embeds, mask, torch.cat(pictures).half())
    with pytest.raises(RuntimeError, match="507018"), NoBooleanAssignment():
        by_mask(embeds.clone(), pictures, mask)
    with NoBooleanAssignment():
        got = merge.merge_with(method)(embeds, pictures, mask)
    assert torch.equal(got, want)
    assert got is embeds


@pytest.mark.parametrize("method", list(merge.METHODS))
@pytest.mark.parametrize("rows", [79, 81])
def test_a_mismatch_either_way_names_both_counts(case, method, rows):
    embeds, _, mask = case
    mask[90:] = False
    with pytest.raises(ValueError, match=f"{rows} multimodal tokens to 80 placeholders"):
        merge.merge_with(method)(embeds, [torch.randn(rows, 64)], mask)


def test_no_embeddings_change_nothing(case):
    embeds, _, mask = case
    assert torch.equal(merge.merge_with("index-copy")(embeds.clone(), [], mask), embeds)


@pytest.mark.parametrize("original", [by_mask, before_011])
def test_arguments_go_where_the_original_takes_them(case, original):
    embeds, pictures, mask = case
    want = by_mask(embeds.clone(), pictures, mask)
    order = {"inputs_embeds": embeds.clone(), "multimodal_embeddings": pictures, "is_multimodal": mask}
    names = original.__code__.co_varnames[:3]
    ours = merge.like(original, "index-copy")
    assert torch.equal(ours(*(order[name] for name in names)), want)
    order["inputs_embeds"] = embeds.clone()
    assert torch.equal(ours(**order), want)


def test_rebound_in_every_module_that_holds_the_name_and_in_no_other(monkeypatch):
    modules = {name: types.ModuleType(name) for name in ("vllm_x.utils", "vllm_x.models.a", "vllm_x.models.b", "other")}
    for name, module in modules.items():
        module.merge_alias = by_mask
        monkeypatch.setitem(sys.modules, name, module)
    ours = merge.like(by_mask, "index-copy")
    with phase_of(registry.by_id("embedding-merge"), "construct"):
        replaced = functions.rebind(by_mask, ours, ("vllm_x",))
    assert [r.name for r in replaced] == [
        "vllm_x.models.a.merge_alias",
        "vllm_x.models.b.merge_alias",
        "vllm_x.utils.merge_alias",
    ]
    assert modules["other"].merge_alias is by_mask
    assert "test_embedding_merge.py:" in replaced[0].original
