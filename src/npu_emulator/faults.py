"""The catalogue of named faults: what each does, how well it is known, where that is stated, and where it is on by
default.

A fault is emulated behaviour. That a fault exists here says nothing about hardware beyond what its evidence says.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from npu_emulator.machine import Machine, current

Evidence = Literal["proven", "reported", "assumed"]
Kind = Literal["fault", "modifier", "property"]

# Runtime codes after which nothing in the process works any more (reports of 507018 on 310P: the context is lost).
STICKY_CODES = frozenset({507015, 507018, 507899})


@dataclass(frozen=True)
class Fault:
    """One named departure from right behaviour.

    `kind`: a "fault" is wrong behaviour, a "property" is something the chip refuses by design, a "modifier" changes how
    other faults show. `chips` and `cann` (prefixes; empty: every version) say where it is on by default; `default`
    False
    means it is never on unless named.
    """

    name: str
    kind: Kind
    evidence: Evidence
    effect: str
    source: str
    default: bool = True
    chips: tuple[str, ...] = ("310P3",)
    cann: tuple[str, ...] = field(default=())

    def on_by_default(self, chip: str, cann: str) -> bool:
        """Whether this chip with this CANN has it unless told otherwise."""
        return self.default and chip in self.chips and (not self.cann or cann.startswith(self.cann))


FAULTS: dict[str, Fault] = {
    fault.name: fault
    for fault in (
        Fault(
            "index-put",
            "fault",
            "proven",
            "assigning through a boolean mask ends in AI-CPU error 507018, and the process is lost",
            "https://github.com/vllm-project/vllm-ascend/issues/12086 https://github.com/Ascend/pytorch/issues/153",
            cann=("9.",),
        ),
        Fault(
            "rotary-fp32",
            "fault",
            "reported",
            "npu_rotary_mul returns float32 for float16 input",
            "published 300I Duo port, problem 1 (vllm-ascend 0.11.0rc0, CANN 8.2.RC1)",
            cann=("8.2", "8.3"),
        ),
        Fault(
            "rotary-coarse",
            "fault",
            "assumed",
            "npu_rotary_mul silently casts cos and sin to 8-bit floats; the dtype of its result is right",
            "published 300I Duo port, problem 1 sees the operator cast; that it does so silently is assumed",
            default=False,
        ),
        Fault(
            "unpad-borders",
            "fault",
            "assumed",
            "_npu_flash_attention_unpad ignores the borders between sequences",
            "published 300I Duo port, problem 3 says that the operator computes wrongly; this form of it is assumed",
            default=False,
        ),
        Fault(
            "unpad-zero-length",
            "fault",
            "assumed",
            "a zero-length entry in seq_len corrupts the sequence after it",
            "published 300I Duo port, problem 3; vllm-ascend 0.11.0 passes a leading 0 (qwen2_5_vl_without_padding.py)",
            cann=("8.2", "8.3"),
        ),
        Fault(
            "unpad-approximate",
            "fault",
            "assumed",
            "_npu_flash_attention_unpad_v2 with kernel_type 2 computes at reduced precision",
            "vllm-ascend 0.23.0.post1 _310p/ops/mm_encoder_attention.py calls it approximate; how much is assumed",
            cann=("9.",),
        ),
        Fault(
            "h2d-race",
            "fault",
            "reported",
            "what a non-blocking copy to the device brings is visible only after the next synchronisation",
            "https://github.com/vllm-project/vllm-ascend/issues/8981 (310P in RC mode)",
            default=False,
        ),
        Fault(
            "repeat-crash",
            "fault",
            "reported",
            "a prefill that reads cached blocks ends in an AI-core error",
            "https://github.com/vllm-project/vllm-ascend/issues/3860 comment of 2025-12-17: the "
            "identical second request",
            cann=("8.2", "8.3"),
        ),
        Fault(
            "no-bf16",
            "property",
            "proven",
            "bfloat16 is refused",
            "torch_npu 2.10.0.post4 operator documentation (Atlas inference series: no bfloat16); "
            "published 300I Duo port",
        ),
        Fault(
            "head-multiple-of-16",
            "property",
            "reported",
            "attention refuses a head width that is no multiple of 16",
            "published 300I Duo port, problem 2; https://github.com/vllm-project/vllm-ascend/issues/6842",
        ),
        Fault(
            "fia-head-width",
            "property",
            "proven",
            "npu_fused_infer_attention_score in TND layout takes head widths 64, 128 and 192 only",
            "https://github.com/vllm-project/vllm-ascend/pull/9632 (error text of the operator)",
            chips=("910B3",),
        ),
        Fault(
            "late-error",
            "modifier",
            "proven",
            "a device error surfaces some operators later, as asynchronous launch makes it",
            "https://github.com/vllm-project/vllm-ascend/issues/12086 (the trace points at a later operator)",
            default=False,
        ),
    )
}


def defaults(chip: str, cann: str) -> frozenset[str]:
    """Names that are on by default on `chip` with `cann`."""
    return frozenset(name for name, fault in FAULTS.items() if fault.on_by_default(chip, cann))


def parse(text: str, chip: str = "310P3", cann: str = "9.1.0") -> frozenset[str]:
    """Read `none`, `default` or a list of names; `default` may stand in a list, and `-name` takes one away.

    Raises ValueError for a name that is not in the catalogue.
    """
    chosen: set[str] = set()
    for item in (part.strip() for part in text.split(",")):
        name = item.removeprefix("-")
        if item in ("", "none"):
            continue
        if item == "default":
            chosen |= defaults(chip, cann)
        elif name not in FAULTS:
            raise ValueError(f"no fault {name!r}; there are: none, default, {', '.join(sorted(FAULTS))}")
        elif item.startswith("-"):
            chosen.discard(name)
        else:
            chosen.add(name)
    return frozenset(chosen)


def active(name: str, machine: Machine | None = None) -> bool:
    """Whether the fault `name` is on in this process. Raises KeyError for a name that is not in the catalogue."""
    if name not in FAULTS:
        raise KeyError(name)
    return name in (machine or current()).faults


def listed(names: Iterable[str]) -> str:
    """The names in order, comma separated; "none" for none."""
    return ",".join(sorted(names)) or "none"
