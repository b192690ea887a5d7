"""The plan as a docker line, with the image it runs in."""

import shlex

from ascend_vl.plan.outputs.command import folded
from ascend_vl.plan.outputs.container import IN_A_CLONE, IN_A_CLONE_CPU, SHARED_MEMORY_GIB, Box, box
from ascend_vl.plan.parts import Plan


def docker_text(plan: Plan) -> str:
    """Build and run."""
    found = box(plan)
    where = IN_A_CLONE if plan.machine.chips else IN_A_CLONE_CPU
    build = "\n".join([f"# {where}", f"docker build -t {found.image} -f - . <<'END'", *found.build, "END"])
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
