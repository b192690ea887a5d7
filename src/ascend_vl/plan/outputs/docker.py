"""The plan as a docker line, with the two-line image it runs in."""

import shlex

from ascend_vl.plan.outputs.command import folded
from ascend_vl.plan.outputs.container import SHARED_MEMORY_GIB, Box, box
from ascend_vl.plan.parts import Plan


def docker_text(plan: Plan) -> str:
    """Build and run."""
    found = box(plan)
    build = "\n".join([f"docker build -t {found.image} - <<'END'", *found.build, "END"])
    return f"{build}\n{folded(run_command(found, '--rm'))} \\\n  {' '.join(map(shlex.quote, tail(found)))}\n"


def run_command(found: Box, *more: str) -> list[str]:
    """`docker run` and its options; variables with secrets are passed on by name."""
    command = ["docker", "run", *more, "--name", "ascend-vl", f"--shm-size={SHARED_MEMORY_GIB}g"]
    command += ["--publish", f"{found.publish_to}:{found.port}:{found.port}"]
    if found.privileged:
        command.append("--privileged")
    for device in found.devices:
        command += ["--device", device]
    for host, inner, read_only in found.mounts:
        command += ["--volume", f"{host}:{inner}{':ro' if read_only else ''}"]
    for name, value in found.environment.items():
        command += ["--env", f"{name}={value}"]
    for name in found.secrets:
        command += ["--env", name]
    return command


def tail(found: Box) -> list[str]:
    """The image and the command inside it."""
    return [found.image, *found.command]
