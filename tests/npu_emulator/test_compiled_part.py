import torch

from npu_emulator.compiled_part import npu_add_rms_norm_bias, npu_apply_top_k_top_p


def test_add_rms_norm_bias() -> None:
    x1, x2, gamma, beta = (torch.randn(shape).half() for shape in ((3, 8), (3, 8), (8,), (8,)))
    normed, reciprocal, total = npu_add_rms_norm_bias(x1, x2, gamma, beta, 1e-5)
    exact = (x1 + x2).double()
    deviation = (exact.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    assert torch.equal(total, x1 + x2) and normed.dtype == torch.float16
    assert torch.allclose(reciprocal.double() * deviation, torch.ones_like(deviation), atol=1e-6)
    assert torch.allclose(normed.double(), exact / deviation * gamma + beta, atol=2e-3)


def kept(logits: torch.Tensor) -> list[list[int]]:
    return [row.isfinite().nonzero().flatten().tolist() for row in logits]


def test_top_k_keeps_the_largest_of_each_row() -> None:
    logits = torch.tensor([[1.0, 4, 2, 3], [4, 3, 2, 1]])
    assert kept(npu_apply_top_k_top_p(logits, k=torch.tensor([2, 1], dtype=torch.int32))) == [[1, 3], [0]]


def test_top_p_keeps_the_smallest_set_that_reaches_it() -> None:
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    for p, expected in ((0.4, [0]), (0.7, [0, 1]), (0.9, [0, 1, 2]), (1.0, [0, 1, 2, 3])):
        out = npu_apply_top_k_top_p(logits, p=torch.tensor([p]))
        assert kept(out) == [expected]
        assert torch.equal(out[0, expected], logits[0, expected])
