"""A compose file as containers and serve commands, with the lines they stand on."""

import shlex
from typing import Any

import yaml

from ascend_vl.plan.lint.container import Container, mounted, read_size
from ascend_vl.plan.lint.shell import Command, Word, read_script

# What `plan` prints instead of `vllm` for a CPU, after the interpreter.
LAUNCHER = ["-m", "ascend_vl.serve.launch", "serve"]


def read_compose(text: str) -> list[Container] | None:
    """The services of a compose file, None when the text is none."""
    if "services" not in text:
        return None
    try:
        root = yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
    services = child(root, "services")
    if not isinstance(services, yaml.MappingNode):
        return None
    return [_service(node) for _, node in services.value if isinstance(node, yaml.MappingNode)]


def child(node: Any, name: str) -> Any:
    """The value of a key of a mapping, None without one."""
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for key, value in node.value if getattr(key, "value", None) == name), None)


def line_of(node: Any) -> int:
    """The line a node begins on, from 1."""
    return int(node.start_mark.line) + 1


def strings(node: Any) -> list[Word]:
    """A scalar or a list of scalars as words; entries of a mapping as NAME=value."""
    if isinstance(node, yaml.ScalarNode):
        return [Word(node.value, line_of(node), True)]
    if isinstance(node, yaml.SequenceNode):
        return [Word(item.value, line_of(item), True) for item in node.value if isinstance(item, yaml.ScalarNode)]
    if isinstance(node, yaml.MappingNode):
        return [Word(f"{key.value}={getattr(value, 'value', '')}", line_of(key), True) for key, value in node.value]
    return []


def _service(node: yaml.MappingNode) -> Container:
    found = Container(line=line_of(node))
    if image := strings(child(node, "image")):
        found.image, found.image_line = image[0].text, image[0].line
    found.devices = [word.text.split(":")[0] for word in strings(child(node, "devices"))]
    found.mounts = [mounted(word.text) for word in strings(child(node, "volumes"))]
    volumes = child(node, "volumes")
    if isinstance(volumes, yaml.SequenceNode):
        targets = [strings(child(item, "target")) for item in volumes.value]
        found.mounts += [words[0].text for words in targets if words]
    for word in strings(child(node, "environment")):
        name, _, value = word.text.partition("=")
        found.environment[name] = Word(value, word.line)
    if shm := strings(child(node, "shm_size")):
        found.shm = read_size(shm[0].text)
    found.host_ipc = [word.text for word in strings(child(node, "ipc"))] == ["host"]
    found.privileged = [word.text for word in strings(child(node, "privileged"))] == ["true"]
    found.ascend_runtime = [word.text for word in strings(child(node, "runtime"))] == ["ascend"]
    network = [word.text for word in strings(child(node, "network_mode"))]
    found.published = bool(strings(child(node, "ports"))) or network == ["host"]
    found.command = _command(node)
    return found


def _command(node: yaml.MappingNode) -> tuple[Word, ...]:
    """Entry point and command as words; a scalar is split as a shell would."""
    words: list[Word] = []
    for name in ("entrypoint", "command"):
        part = child(node, name)
        for word in strings(part):
            if isinstance(part, yaml.ScalarNode):
                words += _split(word, part)
            else:
                words.append(word)
    return tuple(words)


def _split(word: Word, node: yaml.ScalarNode) -> list[Word]:
    line = word.line + (1 if node.style in ("|", ">") else 0)
    if node.style == "|":
        commands = read_script(word.text).commands
        return [Word(item.text, item.line + line - 1, item.quoted) for command in commands for item in command.words]
    try:
        parts = shlex.split(word.text)
    except ValueError:
        parts = word.text.split()
    return [Word(part, line, True) for part in parts]


def serve_words(words: tuple[Word, ...]) -> Command | None:
    """The part of a container's command that begins with `vllm serve`, also inside `bash -c`; None without one."""
    for index, word in enumerate(words):
        if word.text == "vllm" and words[index + 1 : index + 2] and words[index + 1].text == "serve":
            return Command(words[index:])
        if [item.text for item in words[index + 1 : index + 4]] == LAUNCHER and "python" in word.text:
            return Command(words[index:])
        if "vllm serve" in word.text and " " in word.text:
            for command in read_script(word.text).commands:
                if [item.text for item in command.words[:2]] == ["vllm", "serve"]:
                    moved = tuple(Word(item.text, item.line + word.line - 1, item.quoted) for item in command.words)
                    return Command(moved)
    return None
