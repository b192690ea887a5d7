"""What every container form of a plan needs: image, devices, mounts, variables, the command inside."""

import math
from dataclasses import dataclass
from pathlib import Path

from ascend_vl.language import Text
from ascend_vl.plan.outputs.command import launch
from ascend_vl.plan.parts import Plan
from ascend_vl.plan.sharing import VISIBLE
from ascend_vl.rules import table, version_row
from ascend_vl.rules.verdict import allows, best_release, image_of, pinned

MODELS = "/models"
PORT = 8000
SHARED_MEMORY_GIB = 10
# The package is on no index: an image is made in a clone of its repository, or from the wheels of `ascend-vl pack`.
FROM_CLONE = (
    "COPY pyproject.toml README.md LICENSE /opt/ascend-vl/",
    "COPY src /opt/ascend-vl/src",
    "RUN pip install /opt/ascend-vl",
)
# vLLM for the CPU needs torch's CPU build, which `make setup` looks for.
CPU_FROM_CLONE = (
    "RUN apt-get update && apt-get install --yes --no-install-recommends g++ libnuma1 make",
    "COPY . /opt/ascend-vl",
    "ARG TORCH_INDEX",
    "RUN cd /opt/ascend-vl && make setup TORCH_INDEX=${TORCH_INDEX}",
    "ENV PATH=/opt/ascend-vl/.venv/bin:${PATH}",
)
IN_A_CLONE = Text(
    "In a clone of ascend-vl; without a network, make the image from what ascend-vl pack wrote",
    "在 ascend-vl 的克隆中执行；没有网络时，用 ascend-vl pack 的打包目录制作镜像",
)
IN_A_CLONE_CPU = Text(
    "In a clone of ascend-vl; where pip's index serves CUDA builds of torch: --build-arg TORCH_INDEX=URL of CPU builds",
    "在 ascend-vl 的克隆中执行；如果 pip 的索引给出 CUDA 版 torch：--build-arg TORCH_INDEX=CPU 版索引的 URL",
)
IMAGE_FIRST = Text(
    "The image is made by the first command of the same plan with --as docker",
    "镜像由同一方案加 --as docker 时的第一条命令生成",
)


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
        tag, build = base.rpartition(":")[2], [f"FROM {base}", *_packages(plan), *FROM_CLONE]
    else:
        tag, build = "cpu", [f"FROM {base}", *CPU_FROM_CLONE]
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
    release = plan.machine.vllm_ascend or (best.release if best else "")
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
