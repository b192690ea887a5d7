"""Which deployments can draw: one engine, whose workers all answer each call and keep their rows whole."""

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ascend_vl.language import Text

FLASHCOMM = ("VLLM_ASCEND_ENABLE_FLASHCOMM1", "VLLM_ASCEND_ENABLE_FLASHCOMM")
SEQUENCE_PARALLEL = ("enable_sp", "enable_sequence_parallelism")


@dataclass(frozen=True)
class Deployment:
    """What decides; `executor` None is vLLM's own choice for one machine."""

    data_parallel: int = 1
    pipeline_parallel: int = 1
    api_servers: int = 1
    executor: str | None = None
    sequence_parallel: bool = False
    flashcomm: bool = False


def obstacle(deployment: Deployment) -> Text | None:
    """Why drawing cannot run there, or None."""
    executor = deployment.executor
    checks = (
        (deployment.data_parallel == 1, "data parallel size must be 1", "数据并行必须为 1"),
        (deployment.pipeline_parallel == 1, "pipeline parallel size must be 1", "流水线并行必须为 1"),
        (deployment.api_servers == 1, "there must be one API server", "只能有一个 API 服务进程"),
        (executor in (None, "uni", "mp"), f"executor {executor} is not uni or mp", f"执行器 {executor} 不是 uni 或 mp"),
        (not deployment.sequence_parallel, "sequence parallelism must be off", "序列并行必须关闭"),
        (not deployment.flashcomm, "flashcomm must be off", "flashcomm 必须关闭"),
    )
    for good, en, zh in checks:
        if not good:
            return Text(f"{en[0].upper()}{en[1:]}.", f"{zh}。")
    return None


def of_options(options: Sequence[str]) -> Deployment:
    """What options of `vllm serve` and this environment lead to."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--data-parallel-size", "-dp", default="1")
    parser.add_argument("--pipeline-parallel-size", "-pp", default="1")
    parser.add_argument("--api-server-count", "-asc", default="1")
    parser.add_argument("--distributed-executor-backend")
    parser.add_argument("--compilation-config", "-cc", default="{}")
    parser.add_argument("--additional-config", default="{}")
    spelled = [word.partition("=") for word in options]
    dashed = [
        (name.replace("_", "-") if name.startswith("--") else name) + equals + value for name, equals, value in spelled
    ]
    given, _ = parser.parse_known_args(dashed)
    passes = _json(given.compilation_config).get("pass_config") or {}
    return Deployment(
        _number(given.data_parallel_size),
        _number(given.pipeline_parallel_size),
        _number(given.api_server_count),
        given.distributed_executor_backend,
        any(passes.get(name) for name in SEQUENCE_PARALLEL),
        bool(_json(given.additional_config).get("enable_flashcomm1")) or flashcomm_set(),
    )


def of_engine(vllm_config: Any, args: Any) -> Deployment:
    """What an engine's configuration and the API server's arguments are."""
    parallel = vllm_config.parallel_config
    passes = getattr(getattr(vllm_config, "compilation_config", None), "pass_config", None)
    additional = getattr(vllm_config, "additional_config", None) or {}
    return Deployment(
        parallel.data_parallel_size,
        parallel.pipeline_parallel_size,
        getattr(args, "api_server_count", None) or 1,
        getattr(parallel, "distributed_executor_backend", None),
        any(getattr(passes, name, None) for name in SEQUENCE_PARALLEL),
        bool(additional.get("enable_flashcomm1")) or flashcomm_set(),
    )


def flashcomm_set() -> bool:
    """Whether the environment switches vllm-ascend's flashcomm on."""
    return next((os.environ[name] for name in FLASHCOMM if name in os.environ), "0") not in ("", "0")


def _json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _number(text: str) -> int:
    # What is no number is vLLM's to refuse.
    return int(text) if text.isdecimal() else 1
