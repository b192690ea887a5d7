"""The plan as a Kubernetes Deployment and Service, for clusters with the Ascend device plugin."""

import math
from typing import Any

from ascend_vl.plan.outputs.container import IMAGE_FIRST, SHARED_MEMORY_GIB, Box, box, load_seconds
from ascend_vl.plan.outputs.yaml_text import yaml_text
from ascend_vl.plan.parts import Plan

# Names under which the Ascend device plugin offers chips.
RESOURCES = {"310P": "huawei.com/Ascend310P", "A2": "huawei.com/Ascend910", "A3": "huawei.com/Ascend910"}
EVERY_SECONDS = 10


def kubernetes_text(plan: Plan) -> str:
    """Deployment and Service as YAML. Devices come from the device plugin, so no device is mounted."""
    found = box(plan)
    return f"# {IMAGE_FIRST}\n" + "---\n".join(map(yaml_text, [_deployment(plan, found), _service(found)]))


def _deployment(plan: Plan, found: Box) -> dict[str, Any]:
    labels = {"app": "ascend-vl"}
    volumes, mounts = _volumes(found)
    container = {
        "name": "ascend-vl",
        "image": found.image,
        "command": [found.command[0]],
        "args": [word.replace("$(", "$$(") for word in found.command[1:]],
        "env": _environment(found),
        "ports": [{"name": "http", "containerPort": found.port}],
        "resources": _resources(plan),
        "startupProbe": _probe(found.port, math.ceil(load_seconds(plan) / EVERY_SECONDS)),
        "readinessProbe": _probe(found.port, 3),
        "livenessProbe": _probe(found.port, 6),
        "volumeMounts": mounts,
    }
    if found.privileged:
        container["securityContext"] = {"privileged": True}
    pod = {"terminationGracePeriodSeconds": 60, "containers": [container], "volumes": volumes}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "ascend-vl", "labels": labels},
        "spec": {
            "replicas": 1,
            # A second copy would need the same chips while the first still holds them.
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _service(found: Box) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "ascend-vl"},
        "spec": {
            "selector": {"app": "ascend-vl"},
            "ports": [{"name": "http", "port": found.port, "targetPort": "http"}],
        },
    }


def _environment(found: Box) -> list[dict[str, Any]]:
    plain: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in found.environment.items()]
    key = {"name": "ascend-vl", "key": "api-key", "optional": True}
    return plain + [{"name": name, "valueFrom": {"secretKeyRef": key}} for name in found.secrets]


def _resources(plan: Plan) -> dict[str, Any]:
    name = RESOURCES.get(plan.machine.kind)
    if name is None:
        return {"requests": {"memory": f"{math.ceil((plan.memory.weights + plan.memory.kv) / 2**30) + 4}Gi"}}
    used = str(-(-plan.tensor_parallel_size // plan.nodes))
    return {"limits": {name: used}, "requests": {name: used}}


def _probe(port: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": "/health", "port": port},
        "periodSeconds": EVERY_SECONDS,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def _volumes(found: Box) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    volumes: list[dict[str, Any]] = [
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{SHARED_MEMORY_GIB}Gi"}}
    ]
    mounts: list[dict[str, Any]] = [{"name": "shm", "mountPath": "/dev/shm"}]
    for number, (host, inner, read_only) in enumerate(found.mounts):
        volumes.append({"name": f"host-{number}", "hostPath": {"path": host}})
        mount = {"name": f"host-{number}", "mountPath": inner}
        mounts.append(mount | ({"readOnly": True} if read_only else {}))
    return volumes, mounts
