"""Whether a server is ready: it answered a real token, and our plugin is active in each of its workers."""

from typing import Any

import httpx

from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text
from ascend_vl.serve.running_server import RunningServer


def healthy(client: httpx.Client) -> bool:
    """Whether /health answers 200."""
    try:
        return client.get("/health").status_code == 200
    except httpx.TransportError:
        return False


def first_token(client: httpx.Client, server: RunningServer) -> None:
    """Have one token answered. Raises AscendVLError `no-answer`."""
    body = {"model": server.model, "prompt": "1", "max_tokens": 1, "temperature": 0}
    try:
        answer = client.post("/v1/completions", json=body)
        if answer.status_code == 200 and answer.json()["usage"]["completion_tokens"] >= 1:
            return
        cause = f"HTTP {answer.status_code}: {answer.text.strip()[:300]}"
    except (httpx.HTTPError, ValueError, KeyError) as error:
        cause = f"{type(error).__name__}: {error}"
    raise AscendVLError(
        "no-answer",
        Text("The server started but answered no token.", "服务已启动，但没有生成任何词元。"),
        Text(cause, cause),
        Text(f"Its log is {server.log_path}.", f"日志：{server.log_path}"),
    )


def require_active(client: httpx.Client, server: RunningServer) -> dict[str, Any]:
    """The status of a server whose plugin is active in every worker. Raises AscendVLError `plugin-inactive`."""
    try:
        answer = client.get("/v1/ascend_vl/status")
        if answer.status_code == 200:
            status: dict[str, Any] = answer.json()
            silent = [worker["rank"] for worker in status["workers"] if not worker["plugin"]]
            if status["workers"] and not silent:
                return status
            cause = f"workers without it: {silent}"
        else:
            cause = f"/v1/ascend_vl/status: HTTP {answer.status_code}"
    except (httpx.HTTPError, ValueError, KeyError) as error:
        cause = f"{type(error).__name__}: {error}"
    raise AscendVLError(
        "plugin-inactive",
        Text("ascend-vl is not active in every process of the server.", "ascend-vl 未在服务的每个进程中生效。"),
        Text(cause, cause),
        Text(
            "If VLLM_PLUGINS is set it must list ascend_vl; ascend-vl must be installed beside vLLM.",
            "若设置了 VLLM_PLUGINS，其中必须包含 ascend_vl；ascend-vl 必须与 vLLM 安装在同一环境。",
        ),
    )


def require_adaptations(status: dict[str, Any], server: RunningServer) -> None:
    """Every adaptation that the plan counts on is in force in every worker. Raises AscendVLError `adaptation-missing`.

    A worker decides by itself, from the probes' answers that it finds; without this a server whose workers found none
    would answer, and wrongly.
    """
    from ascend_vl.adaptations.record import IN_FORCE

    lacking = []
    for worker in status["workers"]:
        states = {outcome["id"]: outcome["state"] for outcome in worker["adaptations"]}
        lacking += [
            f"worker {worker['rank']}: {name} {states.get(name, 'unknown')}"
            for name in server.plan.adaptations
            if states.get(name) not in IN_FORCE
        ]
    if not lacking:
        return
    cause = "; ".join(lacking)
    raise AscendVLError(
        "adaptation-missing",
        Text("A worker of the server does without an adaptation that it needs.", "服务的某个进程缺少所需的适配。"),
        Text(cause, cause),
        Text(
            f"Start it again: the probes' answers were not the same in the workers. Its log is {server.log_path}.",
            f"请重新启动：各进程读到的探测结果不一致。日志：{server.log_path}",
        ),
    )
