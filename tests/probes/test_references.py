"""Each reference against a second implementation, and the judge against planted errors."""

import pytest
import torch
from torch.nn import functional

from ascend_vl.probes import references
from ascend_vl.probes.judge import judge, relative


def test_packed_attention_is_pytorchs_own_with_a_block_mask():
    q, k, v = references.peaked_heads(30, 2, 16, torch.float64)
    lengths = (7, 12, 11)
    owner = torch.repeat_interleave(torch.arange(3), torch.tensor(lengths))
    mask = owner[:, None] == owner[None]
    heads_first = (t.transpose(0, 1)[None] for t in (q, k, v))
    want = functional.scaled_dot_product_attention(*heads_first, attn_mask=mask, scale=0.3)[0].transpose(0, 1)
    assert relative(references.packed_attention(q, k, v, lengths, 0.3, torch.float64), want) < 1e-12


def test_rotated_is_a_turn_in_the_complex_plane():
    x = torch.randn(1, 5, 2, 8, dtype=torch.float64)
    angles = torch.randn(5, 4, dtype=torch.float64)
    cos, sin = (f(angles).repeat(1, 2)[None, :, None] for f in (torch.cos, torch.sin))
    turned = torch.complex(x[..., :4], x[..., 4:]) * torch.polar(torch.ones_like(angles), angles)[None, :, None]
    want = torch.cat((turned.real, turned.imag), -1)
    assert relative(references.rotated(x, cos, sin, torch.float64), want) < 1e-12


def test_merged_is_masked_scatter():
    target, mask = torch.zeros(6, 3), torch.tensor([0, 1, 1, 0, 0, 1], dtype=torch.bool)
    rows = torch.randn(3, 3)
    assert torch.equal(references.merged(target, mask, rows), target.clone().masked_scatter_(mask[:, None], rows))


def test_peaked_heads_are_peaked():
    q, k, _ = references.peaked_heads(512, 4, 72, torch.float32)
    weights = torch.softmax(torch.einsum("qhd,khd->hqk", q, k) * 72**-0.5, -1)
    assert float(weights.amax(-1).median()) > 0.25
    noise = torch.softmax(torch.randn(4, 512, 512), -1)
    assert float(noise.amax(-1).median()) < 0.1


@pytest.fixture
def case():
    q, k, v = references.peaked_heads(64, 2, 72, torch.float16)
    golden = references.packed_attention(q, k, v, (64,), 72**-0.5, torch.float64)
    return golden, references.packed_attention(q, k, v, (64,), 72**-0.5, torch.float16)


def test_the_reference_itself_passes(case):
    golden, reference = case
    assert judge(golden, reference, reference).right


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda x: x.float(), "dtype"),
        (lambda x: x[:-1], "shape"),
        (lambda x: x.index_fill(0, torch.tensor([3]), float("nan")), "not finite"),
        (lambda x: x * 1.01, "error"),
        (lambda x: x.roll(1, 0), "error"),
    ],
)
def test_planted_errors_are_found_dtype_and_shape_first(case, spoil, reason):
    golden, reference = case
    verdict = judge(golden, reference, spoil(reference))
    assert not verdict.right
    assert reason in verdict.reason
