"""Our routes in the app builders of all vLLM versions: the signatures differ, the way in is one."""

import asyncio
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from ascend_vl.models import names
from ascend_vl.serve import routes, status_route

OURS = SimpleNamespace(worker_extension_cls=names.WORKER_EXTENSION, served_model_name=None, model="m", api_key=None)
STOCK = SimpleNamespace(worker_extension_cls="", served_model_name=None, model="m", api_key=None)


class Engine:
    """Answers the one call that the status route makes."""

    vllm_config = SimpleNamespace(
        model_config=SimpleNamespace(
            hf_config=SimpleNamespace(architectures=["X"]), dtype="torch.float16", max_model_len=9
        )
    )

    async def collective_rpc(self, method: str) -> list[dict[str, Any]]:
        return [{"rank": 0, "plugin": method == "ascend_vl_status"}]


def as_in_0_11() -> ModuleType:
    module = ModuleType("vllm.entrypoints.openai.api_server")

    def build_app(args: Any) -> FastAPI:
        return FastAPI()

    async def init_app_state(engine_client: Any, vllm_config: Any, state: Any, args: Any) -> None:
        state.engine_client = engine_client

    module.build_app, module.init_app_state = build_app, init_app_state  # type: ignore[attr-defined]
    return module


def as_in_0_18() -> ModuleType:
    module = ModuleType("vllm.entrypoints.openai.api_server")

    def build_app(args: Any, supported_tasks: Any = None, model_config: Any = None) -> FastAPI:
        return FastAPI()

    async def init_app_state(engine_client: Any, state: Any, args: Any, supported_tasks: Any = None) -> None:
        state.engine_client = engine_client

    module.build_app, module.init_app_state = build_app, init_app_state  # type: ignore[attr-defined]
    return module


@pytest.fixture(autouse=True)
def only_status(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The status route and one that records its state initialiser's arguments."""
    told: list[Any] = []
    module = ModuleType("recording_route")

    async def init_state(engine_client: Any, state: Any, args: Any) -> None:
        told.append((engine_client, state, args))

    module.attach = lambda app, args: None  # type: ignore[attr-defined]
    module.init_state = init_state  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "recording_route", module)
    monkeypatch.setattr(routes, "ROUTES", ("ascend_vl.serve.status_route", "recording_route"))
    return told


def start(module: Any, args: Any, old: bool) -> tuple[Any, Any, Any]:
    """As vLLM's `run_server` does it; (app, engine, args)."""
    engine = Engine()
    app = module.build_app(args) if old else module.build_app(args, ("generate",), None)
    given = (engine, None, app.state, args) if old else (engine, app.state, args, ("generate",))
    asyncio.run(module.init_app_state(*given))
    return app, engine, args


@pytest.mark.parametrize(("make", "old"), [(as_in_0_11, True), (as_in_0_18, False)])
def test_routes_and_state_arrive_in_every_version(make: Any, old: bool, only_status: list[Any]) -> None:
    module = make()
    routes._wrap(module)
    app, engine, args = start(module, OURS, old)
    answer = TestClient(app).get("/v1/ascend_vl/status")
    assert answer.status_code == 200
    value = answer.json()
    assert value["workers"] == [{"rank": 0, "plugin": True}]
    assert value["model"] == {"served_as": ["m"], "architecture": ["X"], "dtype": "float16", "max_model_len": 9}
    assert value["api_server"]["routes"] == {"/v1/ascend_vl/status": ["GET", "HEAD"]}
    assert only_status == [(engine, app.state, args)]


def test_a_stock_server_gets_nothing(only_status: list[Any]) -> None:
    module = as_in_0_18()
    routes._wrap(module)
    app, _, _ = start(module, STOCK, old=False)
    assert TestClient(app).get("/v1/ascend_vl/status").status_code == 404
    assert only_status == []


def test_wrapping_twice_and_shared_originals_attach_once(only_status: list[Any]) -> None:
    module, holder = as_in_0_18(), ModuleType("vllm.entrypoints.launchers.api_server.entry")
    holder.build_app, holder.init_app_state = module.build_app, module.init_app_state  # type: ignore[attr-defined]
    for each in (module, holder, module):
        routes._wrap(each)
    assert holder.build_app is module.build_app
    start(holder, OURS, old=False)
    assert len(only_status) == 1


def test_without_an_engine_the_status_is_503() -> None:
    module = as_in_0_18()
    routes._wrap(module)
    app = module.build_app(OURS, ("render",), None)
    assert TestClient(app).get("/v1/ascend_vl/status").status_code == 503


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"video": 0}, "refused"),
        ({"video": {"count": 0}, "image": 3}, "refused"),
        ({"video": 1}, "unverified"),
        ({"video": {"count": 1}}, "unverified"),
        ({}, "unverified"),
        (None, "unverified"),
    ],
)
def test_video_is_refused_or_said_to_be_unverified(limits: Any, said: str) -> None:
    assert status_route.video(SimpleNamespace(limit_mm_per_prompt=limits)) == said


@pytest.mark.parametrize("name", routes.ROUTES)
def test_every_route_module_has_the_agreed_function(name: str) -> None:
    import importlib

    assert callable(importlib.import_module(name).attach)
