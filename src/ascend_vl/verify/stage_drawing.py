"""Stage D: the server's drawings against an independent float32 implementation on Transformers' layers, step by step.

Each step of the reference starts from the latent the server had, so that a difference is that step's own.
"""

import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ascend_vl.verify.capture import status_emulated
from ascend_vl.verify.stages import Session

STEPS = 3
SEED = 7
PROMPT = "a red circle on white"
# Largest difference of a step's prediction, relative to its largest value, and root mean square relative to its own.
BOUNDS = {"float32": (1e-5, 1e-5), "float16": (0.05, 0.02), "bfloat16": (0.2, 0.05)}
# From a step's own predictions to the next latent there is float32 arithmetic only, whatever the model's dtype.
LATENT_BOUND = 1e-4
SIDE = 512
# Up to this default size a checkpoint is one that draws shapes, like the demo's.
SHAPES_SIDE = 256
SHAPES_SHARE = 0.75

Arrays = dict[str, NDArray[Any]]


def run(session: Session) -> None:
    """Without and with guidance, and an edit of one picture: ids, positions, noise, every step, the picture."""
    from ascend_vl.drawing.reference import ReferenceDrawer

    server = session.engine()
    session.emulated = session.emulated or status_emulated(server.status or {})
    with server.client() as client:
        card = client.get("/v1/models").json()["data"][0]
    drawing = card.get("ascend_vl", {}).get("drawing")
    if not (drawing and drawing["available"]):
        why = (drawing or {}).get("why") or "this checkpoint has no pixel head, or drawing is off"
        session.check("drawing", None, f"not run: {why}")
        return
    dtype = session.dtype or _dtype(server)
    session.progress("loading the reference for drawing")
    drawer = ReferenceDrawer(session.model)
    side = min(SIDE, *map(int, drawing["default_size"].split("x")))
    folder = session.out / "drawings"
    folder.mkdir(parents=True, exist_ok=True)
    for name, fields in cases(drawing["recipes"]).items():
        session.progress(f"drawing: {name}")
        _case(session, server, drawer, name, {**fields, "size": f"{side}x{side}"}, dtype, folder)
    session.earn("drew")
    if max(map(int, drawing["default_size"].split("x"))) <= SHAPES_SIDE:
        _shapes(session, server, folder)


def _shapes(session: Session, server: Any, folder: Path) -> None:
    """A checkpoint this small draws coloured shapes: are the asked ones there?"""
    from ascend_vl.drawing import client as drawing
    from ascend_vl.images import decode
    from ascend_vl.verify import drawn_shapes

    there = asked = 0
    for number, (prompt, things) in enumerate(drawn_shapes.PROMPTS.items()):
        session.progress(f"drawing: {prompt}")
        with server.client() as client:
            answer = drawing.draw(client, prompt, seed=number)
        (folder / f"shapes-{number}.png").write_bytes(answer.data)
        pixels = np.asarray(decode(answer.data))
        asked += len(things)
        there += sum(drawn_shapes.matches(pixels, thing) for thing in things)
    session.check(
        "asked shapes and colours are there",
        there >= SHAPES_SHARE * asked,
        f"{there} of {asked} in their colour, shape and place (bound {SHAPES_SHARE:g})",
        there=there,
        asked=asked,
    )


def cases(recipes: list[str]) -> dict[str, dict[str, Any]]:
    """Requests by name: the checkpoint's own recipe, guidance, an edit."""
    shared = {"steps": STEPS, "seed": SEED, "trace": True}
    guided = {"recipe": "full"} if "full" in recipes else {"guidance_scale": 5.0}
    return {"own recipe": {**shared}, "guidance": {**shared, **guided}, "edit": {**shared, "edit": True}}


def _case(
    session: Session, server: Any, drawer: Any, name: str, fields: dict[str, Any], dtype: str, folder: Path
) -> None:
    pictures = [_gradient(folder)] if fields.pop("edit", False) else []
    from ascend_vl.drawing import client as drawing

    with server.client() as client:
        answer = drawing.draw(client, PROMPT, pictures, **fields)
    slug = name.replace(" ", "-")
    (folder / f"{slug}.png").write_bytes(answer.data)
    assert answer.trace is not None
    (folder / f"{slug}.npz").write_bytes(answer.trace)
    with np.load(io.BytesIO(answer.trace)) as stored:
        theirs = {key: stored[key] for key in stored.files}
    job = _job(drawer, session.model, pictures, fields)
    same = all(
        np.array_equal(theirs[f"b{k}_{array}"], getattr(branch, array))
        for k, branch in enumerate(job.branches)
        for array in ("input_ids", "position_ids", "token_types")
    )
    session.check(f"{name}: ids, positions, types", same, "exactly equal" if same else "they differ")
    worst, rms, latent = follow(drawer, job, theirs)
    most, mean = BOUNDS[dtype]
    session.check(
        f"{name}: prediction of every step",
        worst <= most and rms <= mean,
        f"largest difference {worst:.2e} (bound {most:g}), root mean square {rms:.2e} (bound {mean:g}), {dtype}",
        largest=worst,
        rms=rms,
    )
    session.check(f"{name}: latent after every step", latent <= LATENT_BOUND, f"{latent:.2e} (bound {LATENT_BOUND:g})")


def _job(drawer: Any, model: Path, pictures: list[Path], fields: dict[str, Any]) -> Any:
    import json

    from ascend_vl.drawing.bench import Bench
    from ascend_vl.drawing.recipes import DrawingConfig
    from ascend_vl.drawing.request import EditRequest, ImageRequest, parse
    from ascend_vl.images import load_image

    config = DrawingConfig.from_checkpoint(json.loads((model / "config.json").read_text(encoding="utf-8")), str(model))
    asked = parse(EditRequest if pictures else ImageRequest, {**fields, "prompt": PROMPT})
    bench = Bench(config, drawer.tokenizer, drawer.image_processor)
    return bench.prepare(asked, lambda: [load_image(path) for path in pictures]).jobs[0]


def follow(drawer: Any, job: Any, theirs: Arrays) -> tuple[float, float, float]:
    """(largest, root-mean-square) difference of the predictions, and the largest of the latents, all relative.

    The reference predicts from the latent the server had; the latent after a step follows from its prediction.
    """
    import torch

    from ascend_vl.drawing.noise import first_noise
    from ascend_vl.drawing.pixels import to_patches
    from ascend_vl.drawing.schedulers import make_scheduler
    from ascend_vl.drawing.velocity import guided_output, network_time

    scheduler = make_scheduler(job.recipe, job.seed)
    references = [torch.from_numpy(to_patches(p, job.patch_size)) for p in job.references]
    z = first_noise(job.seed, job.width, job.height, job.recipe.noise_scale, job.patch_size)
    worst = rms = latent = 0.0
    with torch.no_grad():
        features = drawer.see(job)
        for i, timestep in enumerate(scheduler.timesteps):
            clean = []
            for k in range(len(job.branches)):
                stored = torch.from_numpy(theirs[f"s{i}_b{k}_x_pred"])
                own = drawer.predict(job, k, torch.cat([z, *references]), network_time(timestep), features)
                worst = max(worst, float((stored - own).abs().max() / own.abs().max()))
                rms = max(rms, float((stored - own).square().mean().sqrt() / own.square().mean().sqrt()))
                clean.append(stored[: len(z)])
            output = guided_output(clean, z, timestep, job.t_eps, job.recipe.guidance)
            after = torch.from_numpy(theirs[f"s{i}_prev"][0])
            latent = max(latent, float((scheduler.step(output, z) - after).abs().max() / after.abs().max()))
            z = after
    return worst, rms, latent


def _gradient(folder: Path) -> Path:
    """A picture in which every place looks different."""
    from PIL import Image

    row, column = np.mgrid[0:192, 0:256]
    pixels = np.stack([row, column, 255 - column], axis=-1).astype(np.uint8)
    path = folder / "reference.png"
    Image.fromarray(pixels).save(path)
    return path


def _dtype(server: Any) -> str:
    return str((server.status or {}).get("model", {}).get("dtype", "float32"))
