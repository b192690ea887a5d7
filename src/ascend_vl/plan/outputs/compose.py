"""The plan as a compose file."""

from typing import Any

from ascend_vl.plan.outputs.container import IN_A_CLONE, IN_A_CLONE_CPU, SHARED_MEMORY_GIB, box, load_seconds
from ascend_vl.plan.outputs.yaml_text import yaml_text
from ascend_vl.plan.parts import Plan


def compose_text(plan: Plan) -> str:
    """One service; the key comes from the environment or an .env file."""
    found = box(plan)
    seconds = load_seconds(plan)
    service: dict[str, Any] = {
        "image": found.image,
        "build": {"context": ".", "dockerfile_inline": "\n".join(found.build).replace("$", "$$") + "\n"},
        "restart": "on-failure:5",
        "stop_grace_period": "60s",
        "shm_size": f"{SHARED_MEMORY_GIB}g",
        "ports": [f"{found.publish_to}:{found.port}:{found.port}"],
        "environment": found.environment | {name: f"${{{name}:-}}" for name in found.secrets},
        "devices": [f"{device}:{device}" for device in found.devices],
        "volumes": [f"{host}:{inner}{':ro' if only else ''}" for host, inner, only in found.mounts],
        "command": [word.replace("$", "$$") for word in found.command],
        "healthcheck": {
            "test": [
                "CMD",
                "python",
                "-c",
                f"import urllib.request as u; u.urlopen('http://127.0.0.1:{found.port}/health', timeout=5)",
            ],
            "interval": "10s",
            "timeout": "10s",
            "retries": 6,
            "start_period": f"{seconds}s",
        },
    }
    if found.privileged:
        service["privileged"] = True
    kept = {name: value for name, value in service.items() if value not in ([], {})}
    where = IN_A_CLONE if plan.machine.chips else IN_A_CLONE_CPU
    return f"# {where}\n" + yaml_text({"services": {"ascend-vl": kept}})
