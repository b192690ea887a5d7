"""Act on a module when somebody imports it, without importing it: a plugin must not drag a server into a worker."""

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

Action = Callable[[ModuleType], None]


def when_imported(name: str, action: Action) -> None:
    """Call `action(module)` once for module `name`: now if it is imported already, else right after its import.

    A module that runs as `python -m NAME` is also known as `__main__`, a separate object: it counts as imported.
    """
    loaded = [module for module in (sys.modules.get(name), _run_as_main(name)) if module is not None]
    for module in loaded:
        action(module)
    if name not in sys.modules:
        _finder().actions.setdefault(name, []).append(action)


def _run_as_main(name: str) -> ModuleType | None:
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    return main if spec is not None and spec.name == name else None


class _Finder(importlib.abc.MetaPathFinder):
    """First on sys.meta_path; finds nothing itself, but lets the real loader run `actions` when it is done."""

    def __init__(self) -> None:
        self.actions: dict[str, list[Action]] = {}

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        # Taken out first: the real finders are asked through importlib, which asks this one again.
        actions = self.actions.pop(name, None)
        if actions is None:
            return None
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            self.actions[name] = actions
            return None
        spec.loader = _ActingLoader(spec.loader, actions)
        return spec


class _ActingLoader(importlib.abc.Loader):
    """The module's own loader, followed by the actions."""

    def __init__(self, loader: importlib.abc.Loader, actions: list[Action]) -> None:
        self._loader, self._actions = loader, actions

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        for action in self._actions:
            action(module)


def _finder() -> _Finder:
    for finder in sys.meta_path:
        if isinstance(finder, _Finder):
            return finder
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    return finder
