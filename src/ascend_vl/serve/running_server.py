"""A server that has answered, as its caller holds it."""

import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from ascend_vl.serve import command_options

if TYPE_CHECKING:
    from ascend_vl.plan import Plan


@dataclass
class RunningServer:
    """A server that has answered. `stages` holds seconds; `ready_seconds` are those from spawn to first token."""

    url: str
    log_path: Path
    process: "subprocess.Popen[bytes]"
    plan: "Plan"
    api_key: str | None = field(default=None, repr=False)
    stages: dict[str, float | int | None] = field(default_factory=dict)
    status: dict[str, Any] | None = None

    @property
    def model(self) -> str:
        """The name that requests use."""
        return command_options.served_name(self.plan.command)

    def client(self, timeout: float = 600.0) -> httpx.Client:
        """An HTTP client for it, with the key; relative URLs."""
        headers = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=timeout, trust_env=False)
