"""What every container form of a plan needs: image, devices, mounts, variables, the command inside."""

import math
from dataclasses import dataclass
from pathlib import Path

from ascend_vl.plan.outputs.command import launch
from ascend_vl.plan.parts import Plan
from ascend_vl.plan.sharing import VISIBLE
from ascend_vl.rules import table, version_row
from ascend_vl.rules.verdict import allows, best_release, image_of, pinned

MODELS = "/models"
PORT = 8000
SHARED_MEMORY_GIB = 10


@dataclass(frozen=True)
class Box:
    """A container. `build` are the lines of its Containerfile; `mounts` (host, container, read-only)."""

    image: str
    build: tuple[str, ...]
    devices: tuple[str, ...]
    mounts: tuple[tuple[str, str, bool], ...]
    environment: dict[str, str]
    secrets: tuple[str, ...]
    command: tuple[str, ...]
    port: int
    publish_to: str
    privileged: bool


def box(plan: Plan) -> Box:
    """The container of a plan."""
    base = base_image(plan)
    if plan.machine.chips:
        tag = base.rpartition(":")[2]
        requirement = "ascend-vl"
    else:
        tag = "cpu"
        requirement = '"ascend-vl[cpu]"'
    build = [f"FROM {base}", *_packages(plan), f"RUN pip install {requirement}"]
    return Box(
        image=f"ascend-vl:{tag}",
        build=tuple(build),
        devices=devices(plan),
        mounts=mounts(plan),
        # Inside, chips are numbered anew: the devices given decide.
        environment={name: value for name, value in plan.environment.items() if name != VISIBLE},
        secrets=tuple(plan.secrets) or ("VLLM_API_KEY",),
        command=inside(plan),
        port=int(str(plan.value("port") or PORT)),
        publish_to=str(plan.value("host") or "127.0.0.1"),
        privileged=plan.machine.product == "200i-pro",
    )


def base_image(plan: Plan) -> str:
    """The official image of the planned release; a plain Python for a CPU."""
    if not plan.machine.chips:
        return "python:3.11-slim"
    best = best_release(plan.machine.kind)
    release = plan.machine.vllm_ascend or (best.id.removeprefix("vllm-ascend-") if best else "")
    return image_of(release, plan.machine.kind)


def _packages(plan: Plan) -> list[str]:
    row = version_row(plan.machine.vllm_ascend)
    if row is None or allows(row.transformers, row.image_transformers):
        return []
    return [f'RUN pip install "transformers{pinned(row.transformers)}"']


def devices(plan: Plan) -> tuple[str, ...]:
    """One device for every chip in use, and the management devices."""
    if not plan.machine.chips:
        return ()
    used = -(-plan.tensor_parallel_size // plan.nodes)
    chips = [f"/dev/davinci{chip.device}" for chip in plan.machine.chips[:used]]
    managers = [
        mount.path
        for mount in table().mounts
        if mount.what == "device" and (not mount.products or plan.machine.product in mount.products)
    ]
    return (*chips, *managers)


def mounts(plan: Plan) -> tuple[tuple[str, str, bool], ...]:
    """The driver's files (on an NPU) and the model."""
    found = [
        (mount.path, mount.path, True) for mount in table().mounts if mount.what != "device" and plan.machine.chips
    ]
    if plan.model.from_files:
        found.append((str(Path(plan.model.argument).absolute()), f"{MODELS}/{plan.model.name}", True))
    else:
        found.append(("/root/.cache", "/root/.cache", False))
    return tuple(found)


def inside(plan: Plan) -> tuple[str, ...]:
    """The command in the container: the model where it is mounted, listening on every address of the container."""
    command = list(launch(plan))
    place = command.index(plan.model.argument)
    if plan.model.from_files:
        command[place] = f"{MODELS}/{plan.model.name}"
        if "--served-model-name" not in command:
            command += ["--served-model-name", plan.model.name]
    if "--host" in command:
        command[command.index("--host") + 1] = "0.0.0.0"
    else:
        command += ["--host", "0.0.0.0"]
    return tuple(command)


def load_seconds(plan: Plan) -> int:
    """Generous time from start to ready: ten times what the weights took elsewhere, and five minutes, in seconds."""
    gib = plan.model.file_bytes / 2**30
    return math.ceil(10 * gib * table().setting("load-seconds-a-gib")) + 300
