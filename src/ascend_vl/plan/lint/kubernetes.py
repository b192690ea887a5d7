"""Kubernetes objects as containers, with the lines they stand on."""

import re
from collections.abc import Iterator
from typing import Any

import yaml

from ascend_vl.plan.lint.compose import child, line_of, strings
from ascend_vl.plan.lint.container import Container, read_size
from ascend_vl.plan.lint.shell import Word


def read_kubernetes(text: str) -> list[Container] | None:
    """The containers of all objects in the text, None when it holds no Kubernetes object with a container."""
    if not re.search(r"(?m)^\s*apiVersion\s*:", text):
        return None
    try:
        roots = list(yaml.compose_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
    found = [_container(node, pod) for root in roots for pod in _pods(root) for node in _listed(pod, "containers")]
    return found or None


def _pods(node: Any) -> Iterator[yaml.MappingNode]:
    """Every mapping that has containers, at any depth."""
    if isinstance(node, yaml.MappingNode):
        if _listed(node, "containers"):
            yield node
            return
        for _, value in node.value:
            yield from _pods(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from _pods(value)


def _listed(node: Any, name: str) -> list[yaml.MappingNode]:
    part = child(node, name)
    items = part.value if isinstance(part, yaml.SequenceNode) else []
    return [one for one in items if isinstance(one, yaml.MappingNode)]


def _text(node: Any, name: str) -> str:
    words = strings(child(node, name))
    return words[0].text if words else ""


def _container(node: yaml.MappingNode, pod: yaml.MappingNode) -> Container:
    """Chips are what the device plugin is asked for; it brings the driver's devices and files, as the runtime does."""
    found = Container(line=line_of(node), ascend_runtime=True)
    if image := strings(child(node, "image")):
        found.image, found.image_line = image[0].text, image[0].line
    limits = strings(child(child(node, "resources"), "limits"))
    counts = [word.text.partition("=")[2] for word in limits if word.text.startswith("huawei.com/")]
    number = next((int(count) for count in counts if count.isdigit()), 0)
    found.devices = [f"/dev/davinci{index}" for index in range(number)]
    for variable in _listed(node, "env"):
        found.environment[_text(variable, "name")] = Word(_text(variable, "value"), line_of(variable))
    mounts = [(_text(mount, "name"), _text(mount, "mountPath")) for mount in _listed(node, "volumeMounts")]
    found.mounts = [path for _, path in mounts]
    shared = [name for name, path in mounts if path == "/dev/shm"]
    for volume in _listed(pod, "volumes"):
        if _text(volume, "name") in shared:
            # Without a limit it may take half of the host's memory.
            found.shm = read_size(_text(child(volume, "emptyDir"), "sizeLimit") or "64g")
    found.privileged = _text(child(node, "securityContext"), "privileged") == "true"
    found.published = bool(_listed(node, "ports"))
    found.command = tuple(word for name in ("command", "args") for word in strings(child(node, name)))
    return found
