"""The worker's forward pass on vLLM's layers, against the stored reference values and the independent implementation.

Each mutation is a mistake somebody has made; the same comparison must see it.
"""

import gc
import itertools
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bare
import numpy as np
import oracle
import pytest
import torch
from PIL import Image

from ascend_vl.drawing import noise, references, session
from ascend_vl.drawing import reference as independent
from ascend_vl.drawing import worker as workers
from ascend_vl.drawing.job import Job, build_job, normalised, to_wire
from ascend_vl.drawing.recipes import Constants, DrawingConfig
from ascend_vl.drawing.reference import ReferenceDrawer

pytestmark = pytest.mark.engine


@pytest.fixture
def job_of(tokenizer: Any, image_processor: Any) -> Any:
    return lambda case, **changes: oracle.job(case, tokenizer, image_processor, **changes)


@pytest.mark.parametrize(("case", "layers"), itertools.product(oracle.CASES, (1, 3, 1000)))
def test_it_draws_what_the_reference_drew(worker: bare.BareWorker, job_of: Any, case: str, layers: int) -> None:
    oracle.check(bare.draw(worker, job_of(case), layers), case)


def share_first_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    real = session.Session._read

    def read(self: Any, k: int, features: Any) -> Any:
        yield from real(self, k, features)
        self._prefix[-1] = [self._prefix[-1][0]] * len(self._prefix[-1])

    monkeypatch.setattr(session.Session, "_read", read)


def cache_timestep(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[torch.Tensor] = []

    def embed(model: Any, t: torch.Tensor) -> torch.Tensor:
        kept.append(real(model, t))
        return kept[0]

    real = session.embed_time
    monkeypatch.setattr(session, "embed_time", embed)


def see_later_text(monkeypatch: pytest.MonkeyPatch, worker: bare.BareWorker) -> None:
    decoder = worker._drawing().decoder
    monkeypatch.setattr(decoder, "attend", decoder.attend._replace(causal=decoder.attend.full))


def normalise_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def see(model: Any, conditions: Any, device: Any) -> torch.Tensor:
        return model.visual(torch.from_numpy(normalised(conditions)), grid_thw=torch.from_numpy(conditions.grid_thw))

    monkeypatch.setattr(session, "see", see)


def forget_deepstack(monkeypatch: pytest.MonkeyPatch) -> None:
    real = session.Session._read
    monkeypatch.setattr(session.Session, "_read", lambda self, k, features: real(self, k, features[:1]))


def swap_branches(monkeypatch: pytest.MonkeyPatch) -> None:
    real = session.guided_output
    monkeypatch.setattr(session, "guided_output", lambda predicted, *rest: real(predicted[::-1], *rest))


def draw_seed_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "SEED_OFFSET", 0)


MUTATIONS = {
    "all layers share the first layer's prefix": (share_first_layer, ("t2i", "edit", "dev")),
    "the timestep token is cached with the prefix": (cache_timestep, ("t2i", "dev")),
    "text rows see what follows them": (see_later_text, ("t2i", "edit", "dev")),
    "pixels are normalised twice": (normalise_twice, ("edit",)),
    "deepstack is left out": (forget_deepstack, ("edit",)),
    "guidance is on the wrong branch": (swap_branches, ("t2i", "edit")),
    "the seed is drawn elsewhere": (draw_seed_elsewhere, ("t2i", "dev")),
}


@pytest.mark.parametrize(("name", "case"), [(n, c) for n, (_, cases) in MUTATIONS.items() for c in cases])
def test_known_mistakes_are_seen(
    worker: bare.BareWorker, job_of: Any, monkeypatch: pytest.MonkeyPatch, name: str, case: str
) -> None:
    job, mutate = job_of(case), MUTATIONS[name][0]
    mutate(monkeypatch, worker) if mutate is see_later_text else mutate(monkeypatch)
    with pytest.raises(AssertionError):
        oracle.check(bare.draw(worker, job), case)
    monkeypatch.undo()
    oracle.check(bare.draw(worker, job), case)


def test_text_rows_that_see_the_picture_are_seen(reference: ReferenceDrawer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same mistake as on XPU and NPU elsewhere: one dense attention over all rows."""
    monkeypatch.setattr(independent, "dense_mask", lambda types: torch.zeros(1, 1, len(types), len(types)))
    job = oracle.job("t2i", reference.tokenizer, reference.image_processor)
    with pytest.raises(AssertionError):
        oracle.check(reference.draw(job)[1], "t2i")


def pictures(count: int) -> list[Image.Image]:
    rng = np.random.default_rng(count)
    sizes = [(120 + 37 * k, 90 + 53 * (k % 3)) for k in range(count)]
    return [Image.fromarray(rng.integers(0, 256, (h, w, 3), dtype=np.uint8)) for w, h in sizes]


WIDER = {
    "tall": {"size": (64, 160), "recipe": "full", "steps": 2},
    "chinese": {"size": (96, 96), "recipe": "full", "steps": 2, "prompt": "桌上的红色方块，旁边有一只猫"},
    "no guidance": {"size": (64, 64), "recipe": "full", "steps": 3, "guidance": 1.0},
    "shift 1": {"size": (64, 64), "recipe": "full", "steps": 3, "shift": 1.0},
    "one step": {"size": (64, 64), "recipe": "full", "steps": 1},
    "dev-2604": {"size": (96, 64), "recipe": "dev-2604", "steps": 4},
    "dev edit": {"size": (96, 64), "recipe": "dev", "steps": 3, "references": 1},
    "unipc over the dev list": {"size": (64, 64), "recipe": "full", "timesteps": (999, 700, 300), "steps": None},
    "three references": {"size": (128, 128), "recipe": "full", "steps": 2, "references": 3},
    "nine references": {"size": (256, 256), "recipe": "dev", "steps": 2, "references": 9},
    "ten references": {"size": (512, 256), "recipe": "dev", "steps": 2, "references": 10},
    "layout": {"size": (256, 128), "recipe": "full", "steps": 2, "references": 2, "layout": [[0, 0.4, 0.1, 0.9]]},
    "beyond one pass": {"size": (512, 288), "recipe": "full", "steps": 1},
}


def wider(name: str, tokenizer: Any, image_processor: Any, **more: Any) -> Job:
    asked = dict(WIDER[name]) | more
    count = asked.pop("references", 0)
    constants = Constants()
    prepared, size = references.prepare(
        pictures(count), asked.pop("size"), constants, asked.pop("layout", None), asked.pop("keep_aspect", False)
    )
    prompt = asked.pop("prompt", "a red cube")
    exact = asked.pop("exact", False)
    recipe = DrawingConfig().recipe(asked.pop("recipe"), count, **asked)
    steps = range(recipe.steps)
    return build_job(
        *(prompt, size, 11, recipe, prepared, tokenizer, image_processor, constants), exact=exact, trace_steps=steps
    )


def agree(ours: dict[str, Any], theirs: dict[str, Any], x_pred: float, latent: float, image: float) -> None:
    assert set(ours) == set(theirs)
    for name, value in theirs.items():
        if name.endswith("x_pred"):
            assert oracle.difference(ours[name], value) <= x_pred, name
        elif name.endswith("prev") or name == "z_final":
            assert oracle.difference(ours[name], value) <= latent, name
    assert np.abs(ours["image"].astype(int) - theirs["image"].astype(int)).max() <= image


@pytest.mark.parametrize("name", WIDER)
def test_beyond_the_stored_values_it_agrees_with_the_independent_implementation(
    worker: bare.BareWorker, reference: ReferenceDrawer, name: str
) -> None:
    job = wider(name, reference.tokenizer, reference.image_processor)
    agree(bare.draw(worker, job, 5), reference.draw(job)[1], 1e-5, 1e-4, 1)


def test_bfloat16_stays_within_the_stated_band(tiny: Path, reference: ReferenceDrawer) -> None:
    from ascend_vl.verify.stage_drawing import BOUNDS, follow

    half = bare.load(tiny, dtype="bfloat16")
    assert half.drawing_open()["dtype"] == "bfloat16"
    for name in ("tall", "three references"):
        job = wider(name, reference.tokenizer, reference.image_processor)
        worst, rms, latent = follow(reference, job, bare.draw(half, job))
        assert 1e-4 < rms < BOUNDS["bfloat16"][1] and worst < BOUNDS["bfloat16"][0] and latent < 1e-4


def test_exact_drawings_repeat_bit_for_bit_however_they_are_cut_and_beside_others(
    worker: bare.BareWorker, tokenizer: Any, image_processor: Any
) -> None:
    job = wider("three references", tokenizer, image_processor, exact=True)
    other = wider("tall", tokenizer, image_processor)
    first = bare.draw(worker, job, 1000)
    second = bare.draw(worker, job, 2)
    worker.drawing_begin("a", to_wire(job), ["a"])
    worker.drawing_begin("b", to_wire(other), ["a", "b"])
    while worker.drawing_advance("a", 3)["state"] == "running":
        worker.drawing_advance("b", 1)
    beside = worker.drawing_result("a")["pixels"]
    worker.drawing_end("b")
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert beside == first["image"].tobytes()


def test_every_answer_waits_for_its_device_work(
    worker: bare.BareWorker, job_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[str] = []
    monkeypatch.setattr(workers, "wait_for", lambda device: waits.append(device.type))
    worker.drawing_begin("a", to_wire(job_of("t2i")), ["a"])
    counts = [len(waits)]
    while worker.drawing_advance("a", 2)["state"] == "running":
        counts.append(len(waits))
    worker.drawing_result("a")
    assert counts == list(range(1, len(counts) + 1)) and len(waits) == len(counts) + 2
    before = len(waits)
    assert worker.drawing_advance("nobody", 1)["state"] == "failed" and len(waits) == before + 1


def test_waiting_asks_the_device_and_not_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(torch, "npu", type("npu", (), {"synchronize": asked.append}), raising=False)
    session.wait_for(torch.device("cpu"))
    assert asked == []

    class Device:
        type = "npu"

    session.wait_for(Device())  # type: ignore[arg-type]
    assert len(asked) == 1


def test_a_prediction_that_is_not_finite_is_a_failure(
    worker: bare.BareWorker, job_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = session.clean_patches
    monkeypatch.setattr(session, "clean_patches", lambda model, hidden: real(model, hidden) * float("inf"))
    worker.drawing_begin("a", to_wire(job_of("t2i")), ["a"])
    status = worker.drawing_advance("a", 1)
    while status["state"] == "running":
        status = worker.drawing_advance("a", 1000)
    assert status["code"] == "drawing-not-finite" and worker.drawing_status()["sessions"] == []


def test_nothing_raises_and_nothing_stays(
    worker: bare.BareWorker, job_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for call in (
        worker.drawing_advance("nobody", 1),
        worker.drawing_result("nobody"),
        worker.drawing_preview("nobody"),
    ):
        assert call["state"] == "failed" and call["code"] == "drawing-failed"
    assert worker.drawing_begin("a", {"nonsense": 1}, ["a"])["state"] == "failed"
    monkeypatch.setattr(worker._drawing(), "limit", 1000)
    refused = worker.drawing_begin("a", to_wire(job_of("t2i")), ["a"])
    assert refused["code"] == "drawing-memory" and "1000" in refused["why"]
    assert worker.drawing_end("a")["sessions"] == 0


def fail(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **named: Any) -> None:
        raise torch.OutOfMemoryError("pretended")

    owner = {"rehearse": workers.DrawingState, "_attended": workers.Decoder, "_finish_step": session.Session}[place]
    monkeypatch.setattr(owner, place, broken)


@pytest.mark.parametrize("several", [False, True], ids=["alone", "of two ranks"])
@pytest.mark.parametrize("how", ["ended", "replaced", "rehearse", "_attended", "_finish_step"])
def test_what_a_drawing_held_is_free_at_once(
    worker: bare.BareWorker, job_of: Any, monkeypatch: pytest.MonkeyPatch, how: str, several: bool
) -> None:
    """Not when Python next collects cycles: on a device that may be long after the memory is needed."""
    ranks = worker._drawing().ranks
    if several:
        monkeypatch.setattr(ranks, "size", 2)
        monkeypatch.setattr(ranks, "agree", lambda ok: ok)
        monkeypatch.setattr(ranks, "_group", SimpleNamespace(all_reduce=lambda x: x))
    gc.collect()
    gc.disable()
    try:
        worker.drawing_begin("a", to_wire(job_of("edit")), ["a"])
        worker.drawing_advance("a", 3)
        held = weakref.ref(worker._drawing().sessions["a"])
        if how == "ended":
            worker.drawing_end("a")
        elif how == "replaced":
            worker.drawing_begin("b", to_wire(job_of("t2i")), ["b"])
        else:
            fail(how, monkeypatch)
            while (status := worker.drawing_advance("a", 1000))["state"] == "running":
                pass
            assert status["code"] == "drawing-memory"
        assert held() is None
    finally:
        gc.enable()
        worker.drawing_end("b")


def test_what_the_tower_needs_is_rehearsed_while_it_is_to_run(
    worker: bare.BareWorker, job_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank that runs out of memory inside the tower would leave the others in its all-reduce."""
    job, asked = job_of("edit"), []
    worker.drawing_begin("a", to_wire(job), ["a"])
    try:
        state = worker._drawing()
        made = state.sessions["a"]
        monkeypatch.setattr(workers, "slice_bytes", lambda shape, rows, keys: 1)
        monkeypatch.setattr(torch, "empty", lambda size, **named: asked.append(size))
        state.rehearse(made)
        made.phase = "draw"
        state.rehearse(made)
    finally:
        monkeypatch.undo()
        worker.drawing_end("a")
    # Rows of merged tokens for the language model, main and deepstack, are the least of it.
    tokens = int(job.conditions.grid_thw.prod(axis=1).max()) // job.conditions.merge**2
    levels = 1 + len(worker.model_runner.get_model().config.vision_config.deepstack_visual_indexes)
    assert asked[0] > tokens * levels * state.shape.hidden * 4 and asked[1] == 1


def test_pixels_are_normalised_once_wherever_the_tower_does_it(job_of: Any) -> None:
    """Newer vLLM builds do it in the tower's `input_norm`, older ones expect it done."""
    conditions = job_of("edit").conditions
    given: list[torch.Tensor] = []

    class Tower(SimpleNamespace):
        def __call__(self, values: torch.Tensor, grid_thw: torch.Tensor) -> torch.Tensor:
            given.append(values)
            return values

    class InputNorm:
        pass

    class IdentityInputNorm:
        pass

    for norm in ({}, {"input_norm": IdentityInputNorm()}, {"input_norm": InputNorm()}):
        tower = Tower(dtype=torch.float32, **norm)
        session.see(SimpleNamespace(visual=tower), conditions, torch.device("cpu"))
    raw = torch.from_numpy(conditions.patches.astype(np.float32))
    # Mean and deviation are 0.5 in this checkpoint, so once means values from -1 to 1.
    torch.testing.assert_close(given[0], raw / 127.5 - 1)
    assert torch.equal(given[0], given[1]) and torch.equal(given[2], raw)


def test_beside_chat_a_second_slice_waits_for_a_step(tiny: Path, worker: bare.BareWorker, job_of: Any) -> None:
    steps: list[int] = []
    model = worker.model_runner.get_model()
    beside = bare.BareWorker(model, worker.device)
    beside.model_runner = SimpleNamespace(
        get_model=lambda: model, execute_model=lambda scheduled: steps.append(scheduled.total_num_scheduled_tokens)
    )
    beside.drawing_begin("a", to_wire(job_of("t2i")), ["a"])
    beside.drawing_begin("b", to_wire(job_of("dev")), ["a", "b"])
    first = beside.drawing_advance("a", 1, True)
    assert first["units"] == 1 and "gave_way" not in first
    assert beside.drawing_advance("a", 1, True)["gave_way"] and beside.drawing_advance("b", 1, True)["gave_way"]
    beside.model_runner.execute_model(SimpleNamespace(total_num_scheduled_tokens=0))
    assert beside.drawing_advance("b", 1, True)["gave_way"]
    beside.model_runner.execute_model(SimpleNamespace(total_num_scheduled_tokens=3))
    assert beside.drawing_advance("b", 1, True)["units"] == 1 and steps == [0, 3]
    assert beside.drawing_advance("b", 1, False)["units"] == 1


def test_a_drawing_nobody_names_any_more_is_dropped(worker: bare.BareWorker, job_of: Any) -> None:
    worker.drawing_begin("a", to_wire(job_of("t2i")), ["a"])
    worker.drawing_begin("b", to_wire(job_of("t2i")), ["b"])
    assert worker.drawing_status()["sessions"] == ["b"]
    worker.drawing_end("b")


def test_the_head_is_float32_whatever_the_model_is(tiny: Path, worker: bare.BareWorker) -> None:
    model = worker.model_runner.get_model()
    kinds = {
        p.dtype for n, p in model.named_parameters() if n.startswith(("x_embedder", "t_embedder1", "final_layer2"))
    }
    assert kinds == {torch.float32}


def test_predictions_are_of_the_prompts_branch_in_previews(worker: bare.BareWorker, job_of: Any) -> None:
    job = job_of("t2i")
    worker.drawing_begin("a", to_wire(job), ["a"])
    assert worker.drawing_preview("a")["pixels"] is None
    while worker.drawing_advance("a", 1000)["step"] < 1:
        pass
    shown = np.frombuffer(worker.drawing_preview("a")["pixels"], dtype=np.uint8).reshape(job.height, job.width, 3)
    worker.drawing_end("a")
    from ascend_vl.drawing.pixels import to_pixels

    expected = to_pixels(oracle.values("t2i")["s0_b0_x_pred"], job.width, job.height, 32)
    assert np.abs(shown.astype(int) - expected.astype(int)).max() <= 1
