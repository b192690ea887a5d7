"""The sum, in the numbers of published cases and in its laws."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascend_vl.drawing.budget import workspace_bytes
from ascend_vl.machine import Holder, describe
from ascend_vl.plan import DoesNotFit, Plan, Wishes, resolve
from ascend_vl.plan.memory import Choice, add_up, longest_fit
from ascend_vl.plan.model import Model, known_model
from ascend_vl.plan.wording import gib, memory_sum

GIB = 2**30
NAMES = ("qwen3-vl-2b", "qwen3-vl-4b", "qwen3-vl-8b", "qwen3-vl-32b", "qwen3-vl-30b-a3b", "hidream-o1")


def model(name: str) -> Model:
    found = known_model(name)
    assert found is not None
    return found


def refused(name: str, wishes: Wishes, **machine: object) -> DoesNotFit:
    with pytest.raises(DoesNotFit) as caught:
        resolve(model(name), wishes, describe(**machine))  # type: ignore[arg-type]
    return caught.value


def planned(name: str, wishes: Wishes | None = None, **machine: object) -> Plan:
    return resolve(model(name), wishes or Wishes(), describe(**machine))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "parameters", "kv_kib"),
    [
        # Parameter counts of the published checkpoints.
        ("qwen3-vl-2b", 2_127_532_032, 112),
        ("qwen3-vl-4b", 4_437_815_808, 144),
        ("qwen3-vl-8b", 8_767_123_696, 144),
        ("qwen3-vl-32b", 33_357_390_064, 256),
        ("qwen3-vl-30b-a3b", 31_070_754_032, 96),
        ("hidream-o1", 8_804_887_792, 144),
    ],
)
def test_weights_and_kv_of_published_models(name: str, parameters: int, kv_kib: int) -> None:
    found = model(name)
    assert found.parameters == parameters
    assert found.kv_token_bytes("float16", 1) == kv_kib * 1024


def test_hidream_files_are_float32() -> None:
    assert model("hidream-o1").file_bytes == 8_804_887_792 * 4


def test_the_ports_flags_for_32b_on_two_chips_are_refused_with_the_sum() -> None:
    wishes = Wishes(tensor_parallel_size=2, gpu_memory_utilization=0.75, max_model_len=8192)
    refusal = refused("qwen3-vl-32b", wishes, chip="300i-duo", chips=2)
    memory = refusal.plan.memory
    assert gib(memory.choice.total) == "43.20"
    assert gib(memory.budget) == "32.40"
    assert gib(memory.weights) == "31.07"
    assert gib(memory.non_kv) == "2.00" and memory.non_kv_rule == "memory-non-kv"
    assert gib(memory.left) == "-0.67"
    assert (refusal.code, refusal.exit_code) == ("does-not-fit", 1)
    for number in ("0.75 x 43.20 = 32.40", "62.14 / 2 = 31.07", "2.00", "memory-non-kv", "-0.67"):
        assert number in refusal.why.en and number in refusal.why.zh


def test_one_chip_of_a_card_too_few_is_told_of_the_other() -> None:
    refusal = refused("qwen3-vl-32b", Wishes(), chip="300i-duo", chips=1)
    changes = {change.what: change for change in refusal.plan.memory.changes}
    both = changes["tensor_parallel_size, max_model_len"]
    assert both.memory.fits and both.choice.tensor_parallel == 2
    length = both.choice.max_model_len
    assert f"--tensor-parallel-size 2 --max-model-len {length} (2 chips" in refusal.do.en
    assert planned("qwen3-vl-32b", Wishes(), chip="300i-duo", chips=2).value("max_model_len") == length


def test_what_would_fit_is_offered_and_does() -> None:
    wishes = Wishes(tensor_parallel_size=2, gpu_memory_utilization=0.75, max_model_len=8192)
    refusal = refused("qwen3-vl-32b", wishes, chip="300i-duo", chips=2)
    changes = {change.what: change for change in refusal.plan.memory.changes}
    assert {"gpu_memory_utilization", "tensor_parallel_size", "quantization"} <= set(changes)
    assert changes["tensor_parallel_size"].value == 4
    assert all(change.memory.fits for change in changes.values())
    share = changes["gpu_memory_utilization"].value
    assert isinstance(share, float)
    again = planned(
        "qwen3-vl-32b",
        Wishes(tensor_parallel_size=2, gpu_memory_utilization=share, max_model_len=8192),
        chip="300i-duo",
        chips=2,
    )
    assert again.memory.fits
    # It is the smallest step: one hundredth less does not fit.
    less = Wishes(tensor_parallel_size=2, gpu_memory_utilization=round(share - 0.01, 2), max_model_len=8192)
    refused("qwen3-vl-32b", less, chip="300i-duo", chips=2)


@pytest.mark.parametrize(
    ("name", "ways", "share", "kv_gib"),
    [
        # The survey's arithmetic with 2 GiB besides: 8B TP2 at 0.75, 32B TP2 at 0.9, 32B TP4 at 0.75.
        ("qwen3-vl-8b", 2, 0.75, 11.1),
        ("qwen3-vl-32b", 2, 0.9, 2.9),
        ("qwen3-vl-32b", 4, 0.75, 7.4),
    ],
)
def test_kv_is_halved_on_310p(name: str, ways: int, share: float, kv_gib: float) -> None:
    wishes = Wishes(tensor_parallel_size=ways, gpu_memory_utilization=share, max_model_len=8192)
    plan = planned(name, wishes, chip="300i-duo", chips=4, vllm_ascend="0.18.0")
    memory = plan.memory
    assert memory.kv_share == 0.5
    # The survey did not know of the NZ copies.
    assert memory.left / 2 / GIB == pytest.approx(kv_gib, abs=0.06)
    assert memory.kv == pytest.approx((memory.left - memory.copies) / 2, abs=2)
    before = planned(name, wishes, chip="300i-duo", chips=4, vllm_ascend="0.11.0").memory
    assert (before.kv, before.copies, before.left) == (memory.left, 0, memory.left)


def test_the_910b_ports_measured_kv_cache() -> None:
    """16.63 GB of weights and 35.26 GiB of KV cache were seen there; the estimate may be a fifth below, not above."""
    plan = planned("hidream-o1", Wishes(drawing="off"), chip="800i-a2", vllm_ascend="0.18.0")
    assert 0.8 * 35.26 <= plan.memory.kv / GIB <= 35.26


def test_embedding_and_lm_head_are_held_twice_on_310p() -> None:
    wishes = Wishes(tensor_parallel_size=1, max_model_len=4096)
    for release, copies in (("0.11.0", 0), ("0.18.0", 2), ("0.23.0.post1", 2)):
        memory = planned("qwen3-vl-8b", wishes, chip="300i-duo", vllm_ascend=release).memory
        assert memory.copies == copies * 151936 * 4096 * 2
    tied = planned("qwen3-vl-4b", wishes, chip="300i-duo", vllm_ascend="0.18.0").memory
    assert tied.copies == 151936 * 2560 * 2
    assert planned("qwen3-vl-8b", wishes, chip="800i-a2").memory.copies == 0
    quantised = replace(model("qwen3-vl-8b"), quantised="ModelSlim W8A8", file_bytes=9 * GIB)
    assert resolve(quantised, wishes, describe(chip="300i-duo")).memory.copies == 0


def test_the_910b_ports_loaded_weights() -> None:
    """16.63 GB after loading: the weights without the head, and the rotary table beside them (GB meaning GiB)."""
    memory = planned("hidream-o1", Wishes(drawing="off"), chip="800i-a2", vllm_ascend="0.18.0").memory
    assert memory.rotary == 256 * 2**20
    assert (memory.weights + memory.rotary) / GIB == pytest.approx(16.63, abs=0.06)


@pytest.mark.parametrize(("length", "gigabytes"), [(8192, 0.4), (16384, 1.6), (32768, 6.4), (40960, 10.07)])
def test_the_mask(length: int, gigabytes: float) -> None:
    choice = Choice(int(43.2 * GIB), "310P", "0.18.0", "float16", 1, length, 0.6, False, 16)
    assert add_up(model("qwen3-vl-2b"), choice).mask / 1e9 == pytest.approx(gigabytes, rel=0.01)
    newer = Choice(int(43.2 * GIB), "310P", "0.23.0", "float16", 1, length, 0.6, False, 16)
    assert add_up(model("qwen3-vl-2b"), newer).mask == 0


def test_a_mask_beside_full_utilisation_is_refused_or_makes_room() -> None:
    plan = planned("qwen3-vl-2b", Wishes(max_model_len=32768), chip="300i-duo", vllm_ascend="0.18.0")
    share = plan.value("gpu_memory_utilization")
    assert isinstance(share, float) and share < 0.9
    assert plan.memory.mask <= plan.memory.outside
    wishes = Wishes(max_model_len=32768, gpu_memory_utilization=0.9)
    refusal = refused("qwen3-vl-2b", wishes, chip="300i-duo", vllm_ascend="0.18.0")
    assert "mask" in refusal.why.en


def test_8b_in_float16_does_not_fit_a_300i_pro_chip_but_4b_does() -> None:
    refusal = refused("qwen3-vl-8b", Wishes(), chip="300i-pro", chips=1)
    whats = [change.what for change in refusal.plan.memory.changes]
    assert "tensor_parallel_size" in whats and "quantization" in whats
    assert planned("qwen3-vl-4b", chip="300i-pro", chips=1).memory.fits
    two = planned("qwen3-vl-8b", chip="300i-pro", chips=2)
    assert two.tensor_parallel_size == 2


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("chip", ["300i-duo", "300i-pro", "800i-a2", "a3"])
def test_every_model_has_a_plan_or_a_refusal_with_a_way_out(name: str, chip: str) -> None:
    machine = describe(chip=chip, chips=4)
    try:
        plan = resolve(model(name), Wishes(), machine)
    except DoesNotFit as refusal:
        assert refusal.plan.memory.changes
        return
    assert plan.memory.kv_tokens >= plan.memory.choice.max_model_len


def test_32b_takes_the_fewest_chips() -> None:
    assert planned("qwen3-vl-32b", chip="300i-duo", chips=8).tensor_parallel_size == 4
    assert planned("qwen3-vl-32b", chip="800i-a2", chips=8).tensor_parallel_size == 2
    assert planned("qwen3-vl-8b", chip="800i-a2", chips=8).tensor_parallel_size == 1


def test_drawing_is_taken_from_the_kv_cache() -> None:
    on = planned("hidream-o1", Wishes(drawing="on"), chip="800i-a2")
    off = planned("hidream-o1", Wishes(drawing="off"), chip="800i-a2")
    assert on.memory.drawing > 0 == off.memory.drawing
    assert on.memory.weights - off.memory.weights == 37_764_096 * 4
    assert off.memory.kv - on.memory.kv == on.memory.drawing + 37_764_096 * 4
    assert gib(on.memory.drawing) in memory_sum(on.memory).en and gib(on.memory.drawing) in memory_sum(on.memory).zh
    half, none = (
        planned("hidream-o1", Wishes(drawing=wish, max_model_len=4096), chip="300i-duo", vllm_ascend="0.18.0").memory
        for wish in ("on", "off")
    )
    assert none.kv - half.kv == pytest.approx((half.drawing + 37_764_096 * 4) / 2, abs=2)
    wishes = Wishes(drawing="on", gpu_memory_utilization=0.36, max_model_len=4096)
    refusal = refused("hidream-o1", wishes, chip="800i-a2", chips=1)
    assert "drawing" in [change.what for change in refusal.plan.memory.changes]


def test_the_plan_counts_what_the_model_class_reserves(monkeypatch: pytest.MonkeyPatch) -> None:
    text = model("hidream-o1").text
    config = {
        "text_config": {
            "hidden_size": text.hidden,
            "intermediate_size": text.intermediate,
            "num_hidden_layers": text.layers,
            "num_attention_heads": text.heads,
            "num_key_value_heads": text.kv_heads,
            "head_dim": text.head_dim,
        }
    }
    for ways in (1, 2):
        wishes = Wishes(drawing="on", tensor_parallel_size=ways)
        memory = planned("hidream-o1", wishes, chip="800i-a2", chips=2).memory
        assert memory.drawing == workspace_bytes(config, 2, ways)
    monkeypatch.setenv("ASCEND_VL_DRAWING_WORKSPACE_MIB", "100")
    assert planned("hidream-o1", Wishes(drawing="on"), chip="800i-a2").memory.drawing == 100 * 2**20


def test_on_a_cpu_everything_must_fit_what_is_free() -> None:
    plan = planned("qwen3-vl-2b", chip="cpu", memory=16)
    memory = plan.memory
    assert plan.engine == "vllm-cpu"
    assert memory.weights + memory.non_kv + memory.kv <= 16 * GIB
    assert plan.value("kv_cache_memory_bytes") == memory.kv
    refusal = refused("qwen3-vl-8b", Wishes(), chip="cpu", memory=16)
    assert refusal.plan.memory.short > 0


def test_a_chip_shared_with_another_service() -> None:
    """The public case lost 9.86 GiB of KV cache to a service that held about 19 GB: half of it, after the halving."""
    small = model("qwen3-vl-2b")
    alone = Choice(int(43.2 * GIB), "310P", "0.23.0", "float16", 4, 4096, 0.5, False, 16)
    shared = replace(alone, others=int(19.0e9))
    expected, found = add_up(small, alone), add_up(small, shared)
    assert expected.kv - found.kv == pytest.approx(19.0e9 / 2, abs=2)
    assert "memory-others" in memory_sum(found).en and "memory-others" in memory_sum(found).zh
    # The worker of 0.18 does the same on 310P only, that of 0.11 on every chip.
    for release, kind, counted in (
        ("0.18.0", "310P", True),
        ("0.18.0", "A2", False),
        ("0.17.0rc1", "310P", False),
        ("0.11.0", "310P", True),
        ("0.11.0", "A2", True),
    ):
        assert (add_up(small, replace(shared, version=release, kind=kind)).others > 0) == counted


def test_more_than_is_free_is_refused_as_vllm_refuses_it() -> None:
    busy = {"chip": "800i-a2", "chips": 1, "memory": 64.0, "held": 40.0}
    plan = planned("qwen3-vl-8b", None, **busy)
    assert plan.value("gpu_memory_utilization") == 0.37
    refusal = refused("qwen3-vl-8b", Wishes(gpu_memory_utilization=0.9), **busy)
    assert "24.00 GiB that others leave free" in refusal.why.en and "24.00 GiB" in refusal.why.zh
    # Nothing offered takes more than is free either.
    for change in refusal.plan.memory.changes:
        assert change.choice.utilisation * change.choice.total <= 24 * GIB
    # 310P counts what others hold a second time: the same share of a chip leaves it less.
    alone, shared = (
        planned("qwen3-vl-2b", Wishes(gpu_memory_utilization=0.5), chip="300i-duo", chips=1, held=held).memory
        for held in (None, 10.0)
    )
    assert alone.kv - shared.kv == 5 * GIB


def test_the_share_leaves_other_processes_their_memory() -> None:
    described = describe(chip="300i-duo", chips=1, vllm_ascend="0.18.0")
    chip = replace(described.chips[0], used_bytes=int(12 * GIB), holders=(Holder(7, "python3", int(11 * GIB)),))
    busy = replace(described, chips=(chip,))
    plan = resolve(model("qwen3-vl-2b"), Wishes(), busy)
    share = plan.value("gpu_memory_utilization")
    assert isinstance(share, float)
    assert share * chip.memory_bytes <= chip.free_bytes
    assert any("7" in warning.en for warning in plan.warnings)


def choices() -> st.SearchStrategy[Choice]:
    return st.builds(
        Choice,
        total=st.integers(8 * GIB, 128 * GIB),
        kind=st.sampled_from(["310P", "A2"]),
        version=st.sampled_from(["0.11.0", "0.18.0", "0.23.0.post1"]),
        dtype=st.sampled_from(["float16", "float32"]),
        tensor_parallel=st.sampled_from([1, 2, 4, 8]),
        max_model_len=st.integers(1, 64).map(lambda number: number * 1024),
        utilisation=st.floats(0.3, 0.95),
        drawing=st.booleans(),
        max_num_seqs=st.integers(1, 128),
    )


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(NAMES), choices())
def test_the_sum_adds_up(name: str, choice: Choice) -> None:
    memory = add_up(model(name), choice)
    assert memory.left == memory.budget - memory.weights - memory.drawing - memory.non_kv - memory.others
    assert memory.kv <= max(0, memory.left - memory.copies) or memory.left < memory.copies
    assert memory.outside + memory.budget == choice.total
    assert memory.fits == (memory.kv >= choice.max_model_len * memory.kv_token and memory.mask <= memory.outside)
    text = memory_sum(memory)
    assert gib(memory.budget) in text.en and gib(memory.left) in text.zh


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(NAMES), choices())
def test_the_longest_fit_fits_and_the_next_does_not(name: str, choice: Choice) -> None:
    found = model(name)
    length = longest_fit(found, choice)
    if length is not None:
        assert add_up(found, replace(choice, max_model_len=length)).fits
    longer = (length or 0) + 1024
    if longer <= choice.max_model_len:
        assert not add_up(found, replace(choice, max_model_len=longer)).fits


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(NAMES), st.sampled_from([1, 2, 4, 8]))
def test_more_chips_hold_less_each_but_not_less_together(name: str, ways: int) -> None:
    found = model(name)
    alone = found.weight_bytes("float16", 1, False)
    each = found.weight_bytes("float16", ways, False)
    assert alone / ways <= each <= alone
    assert each * ways < alone * 1.02 + ways * 2**24
