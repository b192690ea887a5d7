"""The plan as a systemd unit: limited restarts, a clean stop."""

import shlex

from ascend_vl.language import Text
from ascend_vl.plan.outputs.container import IMAGE_FIRST, box, load_seconds
from ascend_vl.plan.outputs.docker import run_command, tail
from ascend_vl.plan.parts import Plan

CPU_PYTHON = "/opt/ascend-vl/bin/python"
ENVIRONMENT_FIRST = Text(
    "The environment is made in a clone of ascend-vl that stays: make setup VENV=/opt/ascend-vl",
    "环境在保留的 ascend-vl 克隆中生成：make setup VENV=/opt/ascend-vl",
)


def systemd_text(plan: Plan) -> str:
    """A unit that runs the container on an NPU host, the server itself on a CPU; /etc/ascend-vl.env may hold a key."""
    service = _container(plan) if plan.machine.chips else _process(plan)
    lines = [
        f"# {IMAGE_FIRST if plan.machine.chips else ENVIRONMENT_FIRST}",
        "[Unit]",
        f"Description=ascend-vl serving {plan.model.name}",
        "After=network-online.target" + (" docker.service" if plan.machine.chips else ""),
        "Wants=network-online.target",
        *(["Requires=docker.service"] if plan.machine.chips else []),
        "StartLimitIntervalSec=3600",
        "StartLimitBurst=5",
        "",
        "[Service]",
        "Type=exec",
        "EnvironmentFile=-/etc/ascend-vl.env",
        *service,
        "Restart=on-failure",
        "RestartSec=10",
        f"TimeoutStartSec={load_seconds(plan)}",
        "TimeoutStopSec=90",
        "KillMode=mixed",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return "\n".join(lines) + "\n"


def _container(plan: Plan) -> list[str]:
    found = box(plan)
    run = ["/usr/bin/docker", *run_command(found, "--rm")[1:], *tail(found)]
    return [
        "ExecStartPre=-/usr/bin/docker rm --force ascend-vl",
        f"ExecStart={_line(run)}",
        "ExecStop=/usr/bin/docker stop --time 60 ascend-vl",
    ]


def _process(plan: Plan) -> list[str]:
    variables = [f"Environment={_word(f'{name}={value}')}" for name, value in plan.environment.items()]
    return [*variables, f"ExecStart={_line([CPU_PYTHON, '-m', 'ascend_vl.serve.launch', *plan.command[1:]])}"]


def _line(command: list[str]) -> str:
    return " ".join(map(_word, command))


def _word(text: str) -> str:
    """Quoted for systemd, which expands % and $ itself."""
    escaped = text.replace("%", "%%").replace("$", "$$")
    if shlex.quote(escaped) == escaped:
        return escaped
    return '"' + escaped.replace("\\", "\\\\").replace('"', '\\"') + '"'
