"""Each fault spoils a stock tower, is cured by its own adaptation, and without it nothing is touched. Emulated."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from towers import Model, off, pixels

from ascend_vl.adaptations import MachineFacts, apply
from ascend_vl.adaptations.record import Finding
from ascend_vl.language import Text

PICTURES = [24, 8, 24]
# Features of a tower in float16 against float64; a spoilt tower is beyond SPOILT (issue: 10 %).
CLEAN, SPOILT = 2e-2, 0.1


def facts(version: str, chip: str = "310P3") -> MachineFacts:
    return MachineFacts(chip=chip, vllm_ascend=version)


def finding(fault: bool | None, **numbers: object) -> Finding:
    return Finding(fault, Text("as the probe found", "探测结果"), numbers)


FINE = {
    name: finding(False)
    for name in (
        "bfloat16",
        "index-put",
        "rotary-dtype",
        "rotary-values",
        "vision-zero-length",
        "vision-head-width",
        "vision-precision",
        "vision-borders",
        "copy-race",
    )
}

# fault, version it shows on, probe, what it says, adaptation, how the stock tower fails ("wrong" or an error text)
FAULTS = [
    ("rotary-fp32", "0.11.0", "rotary-dtype", {}, "rotary-dtype", "dtype"),
    ("rotary-fp32", "0.18.0", "rotary-dtype", {}, "rotary-dtype", "dtype"),
    ("rotary-fp32", "0.23.0", "rotary-dtype", {}, "rotary-dtype", "dtype"),
    ("rotary-coarse", "0.11.0", "rotary-values", {}, "rotary-exact", "wrong"),
    ("rotary-coarse", "0.18.0", "rotary-values", {}, "rotary-exact", "wrong"),
    ("rotary-coarse", "0.23.0", "rotary-values", {}, "rotary-exact", "wrong"),
    ("unpad-zero-length", "0.11.0", "vision-zero-length", {}, "vision-lengths", "wrong"),
    ("head-multiple-of-16", "0.11.0", "vision-head-width", {"width": 80}, "vision-head-width", "setup failed"),
    (
        "unpad-borders",
        "0.11.0",
        "vision-borders",
        {"operator": "prompt-flash", "width": 80},
        "vision-operator",
        "wrong",
    ),
    (
        "unpad-borders",
        "0.18.0",
        "vision-borders",
        {"operator": "prompt-flash", "width": 80},
        "vision-operator",
        "wrong",
    ),
    (
        "unpad-borders",
        "0.23.0",
        "vision-borders",
        {"operator": "prompt-flash", "width": 80},
        "vision-operator",
        "wrong",
    ),
    (
        "unpad-approximate",
        "0.23.0",
        "vision-precision",
        {"operator": "unpad", "width": 80},
        "vision-exact-kernel",
        "wrong",
    ),
]


def construct(model: Model, version: str, **findings: Finding) -> list[str]:
    """Ids in force after "construct" with everything else probed fine."""
    given = FINE | {name.replace("_", "-"): value for name, value in findings.items()}
    return [o.id for o in apply("construct", model, facts=facts(version), findings=given) if o.in_force]


@pytest.mark.parametrize(("fault", "version", "probe", "numbers", "adaptation", "failure"), FAULTS)
def test_fault_spoils_stock_and_is_cured_by_its_own_adaptation_alone(
    machine, fault, version, probe, numbers, adaptation, failure
):
    machine("310P3", fault)
    stock = Model(version).visual
    if failure == "wrong":
        assert off(stock(pixels(PICTURES), PICTURES), version, PICTURES) > SPOILT
    else:
        with pytest.raises(RuntimeError, match=failure):
            stock(pixels(PICTURES), PICTURES)
    model = Model(version)
    assert construct(model, version, **{probe: finding(True, **numbers)}) == [adaptation]
    assert off(model.visual(pixels(PICTURES), PICTURES), version, PICTURES) < CLEAN


class Dispatched(TorchDispatchMode):
    """Every operator of PyTorch that is dispatched within, in order, with the shapes of its tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        shapes = [tuple(value.shape) for value in args if isinstance(value, torch.Tensor)]
        self.operators.append(f"{func} {shapes}")
        return func(*args, **(kwargs or {}))


def forward(model: Model, calls) -> tuple[torch.Tensor, list[object], list[str]]:
    """Features, the calls of torch_npu's operators, and all that was dispatched."""
    calls.clear()
    with Dispatched() as dispatched:
        features = model.visual(pixels(PICTURES), PICTURES)
    return features, [(name, described(arguments)) for name, arguments in calls], dispatched.operators


@pytest.mark.parametrize("version", ["0.11.0", "0.18.0", "0.23.0"])
def test_without_a_fault_none_is_active_and_the_dispatched_operators_are_those_of_stock(machine, calls, version):
    stock, called, dispatched = forward(Model(version), calls)
    model = Model(version)
    assert construct(model, version) == []
    ours, called_by_ours, dispatched_by_ours = forward(model, calls)
    assert torch.equal(ours, stock)
    assert called_by_ours == called
    assert dispatched_by_ours == dispatched


def test_an_adaptation_in_force_is_seen_in_what_is_dispatched(machine, calls):
    dispatched = forward(Model("0.18.0"), calls)[2]
    model = Model("0.18.0")
    assert construct(model, "0.18.0", vision_head_width=finding(True), rotary_dtype=finding(True)) == ["rotary-dtype"]
    assert forward(model, calls)[2] == dispatched, "a cast to the same dtype is no operator"
    model = Model("0.18.0")
    construct(model, "0.18.0", vision_borders=finding(True, operator="unpad", width=80))
    assert forward(model, calls)[2] != dispatched


def described(arguments: dict[str, object]) -> dict[str, object]:
    return {k: (v.shape, v.dtype) if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}


@pytest.mark.parametrize("version", ["0.11.0", "0.18.0", "0.23.0"])
def test_our_attention_alone_does_what_stock_does(machine, monkeypatch, version):
    stock = Model(version).visual(pixels(PICTURES), PICTURES)
    monkeypatch.setenv("ASCEND_VL_ADAPT", "+vision-lengths")
    model = Model(version)
    assert construct(model, version) == ["vision-lengths"]
    assert torch.equal(model.visual(pixels(PICTURES), PICTURES), stock)


@pytest.mark.parametrize("version", ["0.11.0", "0.18.0", "0.23.0"])
def test_all_faults_of_the_tower_at_once(machine, version):
    names = ("rotary-fp32", "unpad-zero-length", "head-multiple-of-16", "unpad-borders", "unpad-approximate")
    machine("310P3", *names)
    model = Model(version)
    construct(
        model,
        version,
        **{
            "rotary-dtype": finding(True),
            "vision-zero-length": finding(True),
            "vision-head-width": finding(True, width=80),
            "vision-precision": finding(True, operator="prompt-flash", width=80),
            "vision-borders": finding(True, operator="prompt-flash", width=80),
        },
    )
    assert off(model.visual(pixels(PICTURES), PICTURES), version, PICTURES) < CLEAN


def test_unprobed_exact_ones_stay_on(machine):
    machine("310P3", "rotary-fp32", "unpad-zero-length", "head-multiple-of-16")
    model = Model("0.11.0")
    states = {o.id: o.state for o in apply("construct", model, facts=facts("0.11.0"), findings={})}
    assert {name for name, state in states.items() if state == "unprobed"} == {
        "rotary-dtype",
        "vision-lengths",
        "vision-head-width",
    }
    assert off(model.visual(pixels(PICTURES), PICTURES), "0.11.0", PICTURES) < CLEAN


@pytest.mark.parametrize("operator", ["unpad", "prompt-flash"])
def test_pictures_together_give_what_each_gives_alone_in_any_order_and_again(machine, monkeypatch, operator):
    monkeypatch.setenv("ASCEND_VL_ADAPT", "+vision-operator")
    model = Model("0.18.0")
    construct(model, "0.18.0", **{"vision-borders": finding(True, operator=operator, width=80)})
    pictures = [24, 8, 24, 40]
    parts = [pixels([n]) for n in pictures]
    # Positions restart with each picture here, as a real tower's do.
    alone = [model.visual.blocks[0].attn.attn(**heads(part), cu_seqlens=offsets([len(part)])) for part in parts]
    for order in ([0, 1, 2, 3], [3, 1, 0, 2], [2, 2, 0, 2]):
        chosen = [pictures[i] for i in order]
        together = model.visual.blocks[0].attn.attn(
            **heads(torch.cat([parts[i] for i in order])), cu_seqlens=offsets(chosen)
        )
        for i, part in zip(order, together[0].split(chosen), strict=True):
            assert torch.equal(part, alone[i][0])


def test_a_buffer_of_offsets_that_is_filled_anew_is_read_anew_in_the_next_forward(machine, monkeypatch):
    monkeypatch.setenv("ASCEND_VL_ADAPT", "+vision-lengths")
    model = Model("0.18.0")
    construct(model, "0.18.0")
    attention, buffer = model.visual.blocks[0].attn.attn, offsets([24, 8])
    rows = heads(pixels([32]))
    attention(**rows, cu_seqlens=buffer)
    buffer.copy_(offsets([8, 24]))
    # The hook of the tower, without the layers, which would take other lengths.
    monkeypatch.setattr(model.visual, "forward", lambda: None)
    model.visual()
    assert torch.equal(attention(**rows, cu_seqlens=buffer), attention(**rows, cu_seqlens=offsets([8, 24])))


def heads(rows: torch.Tensor) -> dict[str, torch.Tensor]:
    """Three different views of the rows as (1, T, 2, 72)."""
    shaped = rows.view(1, -1, 2, 72)
    return {"query": shaped * 2, "key": shaped.flip(-1), "value": shaped.roll(5, -1)}


def offsets(pictures: list[int]) -> torch.Tensor:
    return torch.tensor([0, *pictures], dtype=torch.int32).cumsum(0, dtype=torch.int32)
