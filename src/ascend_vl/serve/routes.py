"""Our HTTP routes: which there are, and how they get into vLLM's API server, in every version in the same way.

vLLM builds its application with `build_app` and fills its state with `init_app_state`; both are wrapped in whatever
module holds them (0.11-0.23: openai.api_server, later: launchers). Routes are added only to servers that were started
with our worker extension, and all begin with /v1, where vLLM's --api-key guards them.
"""

import functools
import importlib
import inspect
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any

from ascend_vl.models import names
from ascend_vl.serve import imports
from ascend_vl.serve.replaced import wrap

# Each module has `attach(app, args)` and may have `async init_state(engine_client, state, args)`.
ROUTES = (
    "ascend_vl.serve.status_route",
    "ascend_vl.drawing.routes",
    "ascend_vl.verify.routes",
    "ascend_vl.verify.alarm_route",
)

HOLDERS = (
    "vllm.entrypoints.openai.api_server",
    "vllm.entrypoints.launchers.app",
    "vllm.entrypoints.launchers.api_server.app_state",
    "vllm.entrypoints.launchers.api_server.entry",
)


def install() -> None:
    """Have the app builder and state initialiser wrapped as soon as this process imports them."""
    for holder in HOLDERS:
        imports.when_imported(holder, _wrap)


def _wrap(module: ModuleType) -> None:
    wrap(module, "build_app", with_routes, "adds our HTTP routes under /v1")
    wrap(module, "init_app_state", with_state, "gives our HTTP routes the engine")


def _modules() -> list[ModuleType]:
    return [importlib.import_module(name) for name in ROUTES]


def _paths(app: Any) -> dict[str, list[str]]:
    """Methods by path of the application's routes."""
    found: dict[str, set[str]] = {}
    for route in app.routes:
        found.setdefault(getattr(route, "path", ""), set()).update(getattr(route, "methods", None) or ())
    return {path: sorted(methods) for path, methods in found.items()}


def ours(args: Any) -> bool:
    """Whether this server was started by our plan: its workers can answer our routes."""
    return getattr(args, "worker_extension_cls", None) == names.WORKER_EXTENSION


def with_routes(build_app: Callable[..., Any]) -> Callable[..., Any]:
    """`build_app(args, ...)`, then our routes."""

    @functools.wraps(build_app)
    def build(args: Any, *rest: Any, **named: Any) -> Any:
        app = build_app(args, *rest, **named)
        if ours(args):
            before = set(_paths(app))
            for module in _modules():
                module.attach(app, args)
            app.state.ascend_vl_routes = {path: methods for path, methods in _paths(app).items() if path not in before}
        return app

    return build


def with_state(init_app_state: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """`init_app_state(...)`, then ours; arguments are found by name, since their order differs by version."""
    signature = inspect.signature(init_app_state)

    @functools.wraps(init_app_state)
    async def init(*given: Any, **named: Any) -> None:
        await init_app_state(*given, **named)
        arguments = signature.bind(*given, **named).arguments
        if ours(arguments["args"]):
            for module in _modules():
                if hasattr(module, "init_state"):
                    await module.init_state(arguments["engine_client"], arguments["state"], arguments["args"])

    return init
