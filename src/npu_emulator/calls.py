"""From a call on NPU tensors to an operator's body: who may live where, zero-copy aliases, the device queue, lost
devices.
"""

import functools
import inspect
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from npu_emulator import build, faults
from npu_emulator.contract import OPERATORS, NpuError, Operator
from npu_emulator.machine import current

# With `late-error` a device error is reported this many operators after the one that caused it.
LATE_BY = 5
FORMAT = "npu_format"  # attribute of a tensor: its memory format, a tag only


class Aliases:
    """The tensors of one call: NPU tensors and the CPU aliases that stand for them."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.extension = build.load()

    def incoming(self, name: str, value: Any) -> Any:
        """`value` of argument `name` with NPU tensors aliased. Raises NpuError for a tensor that is on the wrong
        side.
        """
        if isinstance(value, torch.Tensor):
            return self._tensor(name, value)
        if isinstance(value, list | tuple):
            return type(value)([self.incoming(name, item) for item in value])
        return value

    def _tensor(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        on_npu = tensor.device.type == "npu"
        # Indexing takes host indices, as on every accelerator; a number without dimensions counts as a value.
        free = self.operator.namespace == "aten" and (name == "indices" or tensor.dim() == 0)
        if not on_npu:
            if name in self.operator.host or name in self.operator.either or free:
                return tensor
            raise NpuError(
                f"{self.operator.name}: Expected all tensors to be on the same device. Expected NPU tensor, please "
                f"check whether the input tensor device is correct: {name} is on {tensor.device}",
                100,
            )
        if name in self.operator.host:
            raise NpuError(
                f"{self.operator.name}: {name} must be on the host, it is on {tensor.device}\n"
                "ERR00100 PTA call acl api failed.",
                100,
            )
        for npu, cpu in self.pairs:
            if npu is tensor:
                return cpu
        chips = {npu.device for npu, _ in self.pairs} | {tensor.device}
        if len(chips) > 1:
            raise NpuError(f"{self.operator.name}: tensors on several devices {sorted(map(str, chips))}", 100)
        alias = self.extension.to_cpu_alias(tensor.detach())
        if hasattr(tensor, FORMAT):
            setattr(alias, FORMAT, getattr(tensor, FORMAT))
        self.pairs.append((tensor, alias))
        return alias

    def outgoing(self, value: Any, chip: int) -> Any:
        """`value` with CPU tensors on the NPU again: the caller's own tensors, views of them, or new ones."""
        if isinstance(value, torch.Tensor):
            return self._result(value, chip)
        if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
            return type(value)([self.outgoing(item, chip) for item in value])
        return value

    def _result(self, tensor: torch.Tensor, chip: int) -> torch.Tensor:
        result = None
        storage = tensor.untyped_storage()._cdata
        for npu, cpu in self.pairs:
            if cpu is tensor:
                result = npu
            elif cpu.untyped_storage()._cdata == storage and cpu.dtype == tensor.dtype and result is None:
                result = npu.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
        if result is None:
            result = self.extension.adopt_from_cpu(tensor, chip)
        if hasattr(tensor, FORMAT):
            setattr(result, FORMAT, getattr(tensor, FORMAT))
        return result


def _chip(aliases: Aliases, arguments: dict[str, Any]) -> int:
    if aliases.pairs:
        return aliases.pairs[0][0].device.index or 0
    asked = arguments.get("device")
    if asked is not None and torch.device(asked).index is not None:
        return int(torch.device(asked).index)
    return int(aliases.extension.current_chip())


def _copy_results(before: Any, now: Any) -> None:
    if isinstance(now, torch.Tensor):
        if before is not now:
            before.copy_(now)
    elif isinstance(now, list | tuple):
        for old, new in zip(before, now, strict=True):
            _copy_results(old, new)


def bind(operator: Operator) -> Callable[..., Any]:
    """A function to call with NPU tensors that runs `operator` and behaves as a device would."""
    signature = inspect.signature(operator.body)
    extension = build.load()

    @functools.wraps(operator.body)
    def call(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        extension.enqueue()
        aliases = Aliases(operator)
        arguments = {name: aliases.incoming(name, value) for name, value in bound.arguments.items()}
        for name, parameter in signature.parameters.items():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD and name in arguments:
                arguments[name] = {k: aliases.incoming(k, v) for k, v in bound.arguments[name].items()}
        bound.arguments.update(arguments)
        chip = _chip(aliases, arguments)
        try:
            with torch.no_grad():
                result = operator.body(*bound.args, **bound.kwargs)
        except NpuError as error:
            if error.code not in faults.STICKY_CODES:
                raise
            return _lose_device(operator, error, args)
        if extension.capturing():
            extension.record(lambda: _copy_results(result, operator.body(*bound.args, **bound.kwargs)))
        return aliases.outgoing(result, chip)

    return call


def _lose_device(operator: Operator, error: NpuError, args: tuple[Any, ...]) -> Any:
    """The device is lost: said at once, or a few operators later when an in-place operator can return meanwhile."""
    late = faults.active("late-error") and operator.name.endswith("_") and bool(args)
    build.load().fail(error.code, str(error), LATE_BY if late else 0)
    return args[0]


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def of_this_version(operators: Iterable[Operator]) -> list[Operator]:
    """Those of `operators` that the emulated torch_npu has."""
    here = _version(current().torch_npu)
    return [
        operator
        for operator in operators
        if (operator.since is None or here >= _version(operator.since))
        and (operator.until is None or here < _version(operator.until))
    ]


def published() -> frozenset[str]:
    """Names of the operators that the published torch_npu of this version has, emulated or not."""
    here, found = current().torch_npu, set()
    for line in (Path(__file__).parent / "published_names.txt").read_text(encoding="utf-8").splitlines():
        name, *versions = line.split()
        if name != "#" and any(here.startswith(version) for version in versions):
            found.add(name)
    return frozenset(found)


def available() -> dict[str, Operator]:
    """The operators that the emulated torch_npu has, by name."""
    import npu_emulator.operators  # noqa: F401  registers them

    return {operator.name: operator for operator in of_this_version(OPERATORS.values())}
