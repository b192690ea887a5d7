"""The repaired command: the same text's parts with every repairable finding applied."""

import re
import shlex
from dataclasses import replace

from ascend_vl.plan.lint.compose import LAUNCHER, serve_words
from ascend_vl.plan.lint.container import Container, count_devices, covers, image_release
from ascend_vl.plan.lint.findings import Finding
from ascend_vl.plan.lint.serve_command import Serve, Use, as_serve
from ascend_vl.plan.lint.shell import Word
from ascend_vl.rules import table
from ascend_vl.rules.conditions import Subject
from ascend_vl.rules.rows import Condition

# Findings that the repair answers; the others need a person.
CONTAINER = {
    "lint-no-device",
    "lint-too-few-devices",
    "lint-management-device-missing",
    "lint-mount-missing",
    "lint-mount-advised",
    "lint-shm-small",
    "lint-image-kind",
    "lint-image-release",
}
TEXTUAL = {
    "lint-broken-continuation",
    "lint-comment-in-continuation",
    "lint-smart-quote",
    "lint-repeated-contradiction",
    "lint-repeated",
}


def repaired(
    serves: list[Serve],
    containers: list[Container],
    exported: dict[str, Word],
    subject: Subject,
    found: tuple[Finding, ...],
) -> str:
    """The repaired commands, "" when nothing found can be repaired by rule."""
    rules = {finding.rule for finding in found}
    conditions = [condition for row in table().flags for condition in row.findings]
    variables = [condition for row in table().environment for condition in row.findings]
    mendable = {condition.id for condition in [*conditions, *variables] if condition.replace_with is not None}
    if not rules & (mendable | CONTAINER | TEXTUAL):
        return ""
    lines = []
    printed: list[Serve] = []
    for one in containers:
        if one.source is not None:
            inner = next((serve for serve in serves if _is_inside(serve, one)), None)
            lines.append(_container(one, subject, rules, serves, inner))
            printed += [inner] if inner else []
    inside = {name for one in containers for name in one.environment}
    kept = {name: word.text for name, word in exported.items() if name not in inside}
    rest = [serve for serve in serves if serve not in printed]
    if rest or kept:
        lines += [f"export {name}={quote(value)}" for name, value in _environment(kept, rules).items()]
    lines += [_serve(serve, rules) for serve in rest]
    return "\n".join(lines)


def _is_inside(serve: Serve, one: Container) -> bool:
    command = serve_words(one.command)
    found = as_serve(command) if command else None
    return found is not None and found.uses == serve.uses


def _environment(variables: dict[str, str], rules: set[str]) -> dict[str, str]:
    """The variables after every finding about them was answered."""
    wanted = dict(variables)
    for row in table().environment:
        for condition in row.findings:
            if condition.id not in rules or condition.replace_with is None:
                continue
            if condition.replace_with == "":
                wanted.pop(row.name, None)
            else:
                wanted[row.name] = condition.replace_with
    return wanted


def _serve(serve: Serve, rules: set[str]) -> str:
    """The repaired serve command, one flag a line."""
    prefix = [f"{name}={quote(value)}" for name, value in _environment(_own(serve), rules).items()]
    head, *flags = _parts(serve, rules)
    return " \\\n  ".join([" ".join([*prefix, *map(quote, head)]), *(" ".join(map(quote, flag)) for flag in flags)])


def _own(serve: Serve) -> dict[str, str]:
    return {name: value for name, value, _ in serve.environment}


def _parts(serve: Serve, rules: set[str]) -> list[list[str]]:
    """The words of the repaired command: program and model first, then each flag with its values."""
    uses = list({use.name: use for use in serve.uses}.values())
    for row in table().flags:
        for condition in row.findings:
            if condition.id in rules and condition.replace_with is not None:
                uses = _apply(uses, row.name, condition, serve.line)
    if any(use.name == "--enforce-eager" for use in uses) and not serve.last("--enforce-eager"):
        uses = [use for use in uses if use.name != "--compilation-config"]
    head = [*serve.start, *([serve.model] if serve.model and not serve.last("--model") else [])]
    return [head, *([_spelling(use), *use.values] for use in uses)]


def _apply(uses: list[Use], name: str, condition: Condition, line: int) -> list[Use]:
    value = condition.replace_with or ""
    if condition.absent:
        positive = not value.startswith("--no-")
        values = () if value == "" or not positive else (value,)
        return [use for use in uses if use.name != name] + [Use(name, name, values, line, positive)]
    if value == "":
        return [use for use in uses if use.name != name]
    return [replace(use, values=(value,)) if use.name == name else use for use in uses]


def _spelling(use: Use) -> str:
    if not use.name.startswith("--"):
        return use.spelled
    return use.name if use.positive else f"--no-{use.name[2:]}"


def quote(text: str) -> str:
    """Quoted for a shell; variables such as $1 or ${NAME} stay variables."""
    if re.search(r"\$[\w{]", text):
        return '"' + re.sub(r'([\\"`])', r"\\\1", text) + '"'
    return shlex.quote(text)


def _container(one: Container, subject: Subject, rules: set[str], serves: list[Serve], inner: Serve | None) -> str:
    """The repaired docker line, with the repaired command inside it."""
    assert one.source is not None
    words = [word.text for word in one.source.words]
    position = len(words) - len(one.command) - 1
    options, command = words[2:position], words[position + 1 :]
    added: list[list[str]] = []
    if rules & {"lint-no-device", "lint-too-few-devices"}:
        needed = max([serve.tensor_parallel or 1 for serve in serves], default=1)
        present = {name for name in one.devices if name.removeprefix("/dev/davinci").isdigit()}
        free = (f"/dev/davinci{number}" for number in range(64) if f"/dev/davinci{number}" not in present)
        added += [["--device", next(free)] for _ in range(max(0, needed - len(present)))]
    if "lint-management-device-missing" in rules:
        added += [["--device", mount.path] for mount in _missing_devices(one, subject)]
    for mount in table().mounts if rules & {"lint-mount-missing", "lint-mount-advised"} else ():
        if mount.what != "device" and not any(covers(path, mount.path) for path in one.mounts):
            added.append(["-v", f"{mount.path}:{mount.path}"])
    if "lint-shm-small" in rules:
        options = _without(options, "--shm-size")
        added.append(["--shm-size=10g"])
    if one.ascend_runtime and (visible := one.environment.get("ASCEND_VISIBLE_DEVICES")):
        added = [] if count_devices(visible.text) else added
    image = _image(one.image, subject, rules)
    if inner is not None:
        command = _inside(command, [word for part in _parts(inner, rules) for word in part])
        options, variables = _variables(options, one, rules)
        # Without a value a variable is passed on from outside.
        added += [["-e", f"{name}={value}" if value else name] for name, value in variables.items()]
    parts = [" ".join(words[:2]), *_pairs(options), *(" ".join(map(quote, pair)) for pair in added)]
    return " \\\n  ".join([*parts, " ".join(map(quote, [image, *command]))])


def _inside(command: list[str], serve: list[str]) -> list[str]:
    """The container's command with its serve part replaced, also inside `bash -c`."""
    for index, word in enumerate(command):
        if word == "vllm" and command[index + 1 : index + 2] == ["serve"]:
            return [*command[:index], *serve]
        if "python" in word and command[index + 1 : index + 4] == LAUNCHER:
            return [*command[:index], *serve]
        if "vllm serve" in word and " " in word:
            start = word.index("vllm serve")
            return [*command[:index], word[:start] + " ".join(map(quote, serve)), *command[index + 1 :]]
    return command


def _variables(options: list[str], one: Container, rules: set[str]) -> tuple[list[str], dict[str, str]]:
    """(options without -e, the repaired variables)."""
    kept: list[str] = []
    words = iter(options)
    for word in words:
        if word in ("-e", "--env"):
            next(words, "")
        elif not word.startswith(("--env=", "-e=")):
            kept.append(word)
    return kept, _environment({name: word.text for name, word in one.environment.items()}, rules)


def _missing_devices(one: Container, subject: Subject) -> list:  # type: ignore[type-arg]
    return [
        mount
        for mount in table().mounts
        if mount.what == "device"
        and mount.required
        and mount.path not in one.devices
        and (not mount.products or subject.product in mount.products)
    ]


def _image(image: str, subject: Subject, rules: set[str]) -> str:
    if not rules & {"lint-image-kind", "lint-image-release"}:
        return image
    row = table().images[0]
    name, _, tag = image.rpartition(":")
    release, _ = image_release(image)
    if "lint-image-release" in rules:
        from ascend_vl.rules.verdict import best_release

        best = best_release(str(subject.kind))
        release = best.release if best else release
    system = "-openeuler" if "-openeuler" in tag else ""
    return f"{name}:v{release}{row.suffixes.get(str(subject.kind), '')}{system}"


def _without(options: list[str], name: str) -> list[str]:
    kept: list[str] = []
    skip = False
    for option in options:
        if skip:
            skip = False
        elif option == name:
            skip = True
        elif not option.startswith(f"{name}="):
            kept.append(option)
    return kept


def _pairs(options: list[str]) -> list[str]:
    """Options with their values, one pair a line."""
    lines: list[str] = []
    for option in options:
        if option.startswith("-") or not lines:
            lines.append(quote(option))
        else:
            lines[-1] += " " + quote(option)
    return lines
