import importlib.metadata
import importlib.util
import logging
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from ascend_vl import plugin
from ascend_vl.models import names
from ascend_vl.serve import imports


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What `register` tells a stand-in for vLLM's registry; watches for imports are dropped again."""
    told: dict[str, str] = {}
    vllm = ModuleType("vllm")
    vllm.ModelRegistry = SimpleNamespace(register_model=told.__setitem__)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    monkeypatch.setattr(plugin, "_registered", False)
    monkeypatch.setattr(imports, "when_imported", lambda name, action: None)
    return told


def test_registering_is_lazy_and_may_be_repeated(registered: dict[str, str]) -> None:
    plugin.register()
    assert plugin.active()
    assert registered == names.CLASSES
    registered.clear()
    plugin.register()
    assert registered == {}


def test_off_registers_nothing(registered: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASCEND_VL", "off")
    plugin.register()
    assert registered == {}
    assert not plugin.active()


def test_the_entry_point_is_this_function() -> None:
    points = importlib.metadata.entry_points(group="vllm.general_plugins")
    assert {point.name: point.value for point in points}["ascend_vl"] == "ascend_vl.plugin:register"


def test_no_name_is_a_stock_one_and_no_file_shares_a_name_with_vllms() -> None:
    spec = importlib.util.find_spec("vllm")
    assert spec is not None and spec.origin is not None
    models = Path(spec.origin).parent / "model_executor" / "models"
    stock = (models / "registry.py").read_text()
    files = {path.stem for path in models.rglob("*.py")}
    for architecture, place in names.CLASSES.items():
        module, _, _ = place.partition(":")
        assert f'"{architecture}"' not in stock
        assert architecture.endswith("ForConditionalGeneration")
        assert module.rpartition(".")[2] not in files
        assert importlib.util.find_spec(module) is not None


@pytest.mark.parametrize(("version", "warned"), [("0.99.0", True), ("0.23.0.post1", False), (None, False)])
def test_an_unknown_vllm_ascend_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, version: str | None, warned: bool
) -> None:
    def installed(name: str) -> str:
        if version is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(importlib.metadata, "version", installed)
    with caplog.at_level(logging.WARNING, logger=plugin.logger.name):
        plugin._warn_of_unknown_stack()
    assert bool(caplog.records) == warned
