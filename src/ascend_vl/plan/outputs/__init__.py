"""A plan as a command, a container line, a compose file, Kubernetes objects, a systemd unit, or JSON."""

from collections.abc import Callable

from ascend_vl.plan.outputs.as_json import plan_json
from ascend_vl.plan.outputs.command import command_text
from ascend_vl.plan.outputs.compose import compose_text
from ascend_vl.plan.outputs.docker import docker_text
from ascend_vl.plan.outputs.kubernetes import kubernetes_text
from ascend_vl.plan.outputs.systemd import systemd_text
from ascend_vl.plan.parts import Plan

FORMS: dict[str, Callable[[Plan], str]] = {
    "command": command_text,
    "docker": docker_text,
    "compose": compose_text,
    "k8s": kubernetes_text,
    "systemd": systemd_text,
}

__all__ = ["FORMS", "plan_json"]
