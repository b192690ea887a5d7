"""Judging an operator's result against float64 and against plain PyTorch in the same dtype."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# An operator may be this many times as far from the float64 result as plain PyTorch is (design: 2), plus rounding.
FACTOR = 2.0


@dataclass(frozen=True)
class Verdict:
    """`right` and why; errors are relative to the size of the float64 result: norm of the difference over its norm."""

    right: bool
    reason: str
    target_error: float | None = None
    reference_error: float | None = None

    def numbers(self) -> dict[str, object]:
        """The measured values, for findings."""
        return {"verdict": self.reason, "error": self.target_error, "reference_error": self.reference_error}


def relative(value: "torch.Tensor", golden: "torch.Tensor") -> float:
    """Norm of the difference over the norm of `golden`, in float64."""
    want = golden.double()
    return float((value.double() - want).norm() / want.norm().clamp(min=1e-300))


def judge(golden: "torch.Tensor", reference: "torch.Tensor", target: "torch.Tensor") -> Verdict:
    """Shape, dtype and non-finite positions first, then error <= 2 x reference error + one rounding step.

    `golden` float64 from the exact low-precision inputs; `reference` plain PyTorch in the dtype under test; `target`
    the operator's result. All on the CPU.
    """
    import torch

    if target.shape != golden.shape:
        return Verdict(False, f"shape {tuple(target.shape)} instead of {tuple(golden.shape)}")
    if target.dtype != reference.dtype:
        return Verdict(False, f"dtype {target.dtype} instead of {reference.dtype}")
    if not torch.equal(target.isfinite(), golden.isfinite()):
        return Verdict(False, f"{int((~target.isfinite()).sum())} values are not finite")
    found, allowed = relative(target, golden), relative(reference, golden)
    bound = FACTOR * allowed + float(torch.finfo(reference.dtype).eps)
    reason = f"error {found:.2e}, plain PyTorch {allowed:.2e}, allowed {bound:.2e}"
    return Verdict(found <= bound, reason, found, allowed)
