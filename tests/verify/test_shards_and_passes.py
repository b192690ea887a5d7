"""Weights split over ranks as vLLM splits them, and blocks watched over several passes."""

import types

import pytest
import torch

from ascend_vl.verify import operators, shards
from ascend_vl.verify.points import PointWatch
from ascend_vl.verify.replay import BlockWatch, joined, with_cache


class ColumnParallelLinear:
    def __init__(self, rank, ranks, sizes, **more):
        self.tp_rank, self.tp_size, self.output_partition_sizes = rank, ranks, sizes
        vars(self).update(more)


class QKVParallelLinear(ColumnParallelLinear):
    pass


class RowParallelLinear:
    def __init__(self, rank, ranks, width):
        self.tp_rank, self.tp_size, self.input_size_per_partition = rank, ranks, width


class VocabParallelEmbedding:
    def __init__(self, rank, start, end):
        self.tp_rank, self.tp_size = rank, 2
        self.shard_indices = types.SimpleNamespace(org_vocab_start_index=start, org_vocab_end_index=end)


def rows(count, width=3):
    return torch.arange(count * width, dtype=torch.float32).reshape(count, width)


def taken(module, whole, parameter="weight"):
    """Indices of the rows of `whole` that the rank holds."""
    return [int(row[0]) // whole.shape[1] for row in shards.of_rank(module, parameter, whole)]


def test_a_layer_on_one_rank_holds_all():
    assert taken(ColumnParallelLinear(0, 1, [4]), rows(4)) == [0, 1, 2, 3]


@pytest.mark.parametrize(("rank", "expected"), [(0, [0, 1, 4, 5, 6]), (1, [2, 3, 7, 8, 9])])
def test_merged_parts_are_split_each_by_itself(rank, expected):
    assert taken(ColumnParallelLinear(rank, 2, [2, 3], output_sizes=[4, 6]), rows(10)) == expected


@pytest.mark.parametrize(("rank", "expected"), [(0, [0, 1, 4, 5]), (1, [2, 3, 4, 5])])
def test_one_key_head_is_held_by_both_ranks(rank, expected):
    # Two query heads, one key and value head, each one row wide but for a head size of 2.
    module = QKVParallelLinear(rank, 2, [2, 1, 1], head_size=1, total_num_heads=4, total_num_kv_heads=1)
    assert taken(module, rows(6)) == expected


def test_row_parallel_layers_split_columns_and_keep_the_bias():
    module = RowParallelLinear(1, 2, 2)
    assert torch.equal(shards.of_rank(module, "weight", rows(2, 4)), rows(2, 4)[:, 2:])
    assert torch.equal(shards.of_rank(module, "bias", torch.arange(5)), torch.arange(5))
    assert shards.sums_ranks(module) and not shards.sums_ranks(RowParallelLinear(0, 1, 4))


def test_a_vocabulary_is_split_by_its_own_bounds():
    assert taken(VocabParallelEmbedding(1, 3, 5), rows(5)) == [3, 4]


def test_inputs_of_all_ranks_stand_side_by_side_where_their_sum_is_given(monkeypatch):
    module = types.new_class("AscendRowParallelLinear", (RowParallelLinear,))(0, 2, 2)
    other = torch.full((1, 2), 7.0)
    monkeypatch.setattr(shards, "gather", lambda tensor: [tensor, other])
    call = {"args": [torch.ones(1, 2)], "kwargs": {}, "output": torch.zeros(1, 4)}
    ((_, _, found),) = joined([("x", module, call)])
    assert found["args"][0].tolist() == [[1.0, 1.0, 7.0, 7.0]]


class Attention(torch.nn.Module):
    """Adds one; counts as text attention by its name."""

    def forward(self, query, key, value):
        return query + 1


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = Attention()
        self.norm = torch.nn.LayerNorm(4)

    def forward(self, x):
        return self.attn(self.norm(x), x, x)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.visual = torch.nn.Module()
        self.visual.block = Block()


def test_the_last_pass_keeps_the_keys_of_all_passes_and_nothing_else_of_earlier_ones():
    model = Model()
    watch = BlockWatch(model, "visual.block", last_pass=True)
    for size in (3, 1, 1):
        model.visual.block(torch.full((size, 4), float(size)))
    watch.stop()
    assert "forward" not in vars(model.visual.block)
    names = [name for name, _, _ in watch.calls]
    assert names.count("visual.block.norm") == 1 and names.count("visual.block.attn") == 3
    found = {name: call for name, _, call in joined(watch.calls)}
    query, key, _ = found["visual.block.attn"]["args"]
    assert query.shape == (1, 4) and key.shape == (5, 4)
    assert torch.equal(found["visual.block.attn"]["output"], query + 1)


def test_a_decode_step_attends_to_what_prefill_left_in_the_cache():
    q, k, v = (torch.randn(5, 2, 8, generator=torch.Generator().manual_seed(i)).double() for i in range(3))
    whole = operators.attention(q, k, v, 0.5, causal=True)
    calls = [
        {"args": [t[part].flatten(1) for t in (q, k, v)], "kwargs": {}, "output": whole[part].flatten(1)}
        for part in (slice(0, 4), slice(4, 5))
    ]
    step = with_cache(calls)
    query, key, value = (t.unflatten(1, (2, 8)) for t in step["args"])
    assert torch.allclose(operators.attention(query, key, value, 0.5, causal=True), whole[4:], atol=1e-12)


def test_a_watch_of_the_last_pass_takes_its_last_row():
    model = Model()
    watch = PointWatch(model, "visual.block", last_pass=True)
    for value in (1.0, 2.0):
        model.visual.block(torch.tensor([[0.0, value, 1.0, 0.0], [value, 0.0, 0.0, 0.0]]))
    seen = watch.take()
    expected = model.visual.block(torch.tensor([[0.0, 2.0, 1.0, 0.0], [2.0, 0.0, 0.0, 0.0]]))[-1:]
    assert torch.equal(seen, expected.double())


class SplitLinear(torch.nn.Linear):
    """The second of two ranks' rows of a layer (8, 4)."""

    tp_rank, tp_size, output_partition_sizes = 1, 2, (4,)


@pytest.mark.parametrize("wrong", [False, True])
def test_a_ranks_weights_are_held_against_its_part_of_the_checkpoint(wrong):
    from ascend_vl.verify.weights import compare_module

    whole = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    model = torch.nn.Module()
    model.visual = torch.nn.Module()
    model.visual.fc = SplitLinear(4, 4, bias=False)
    model.visual.fc.weight.data = whole[:4].clone() if wrong else whole[4:].clone()
    found = compare_module(model, "visual.fc", {"model.visual.fc.weight": whole})
    assert [item["tensors"] for item in found] == ([["model.visual.fc.weight"]] if wrong else [])
