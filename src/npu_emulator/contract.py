"""What an operator of the emulated NPU is: its body, where its arguments live, which torch_npu has it, and who says
so.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


class NpuError(RuntimeError):
    """An error as the NPU would report it.

    `code` is the runtime's number (for example 507018, an AI-CPU exception; 207001, no device memory).
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (str(self), self.code))


@dataclass(frozen=True)
class Operator:
    """One operator of `torch_npu` (or of another namespace of `torch.ops`).

    `body` receives ordinary CPU tensors. Arguments named in `host` are CPU tensors or lists, those in `either` may be
    on
    either side (releases of vllm-ascend pass both), all others are on the NPU.
    `schema`: the published argument list and returns, where torch.compile must trace it and annotations do not tell.
    The name exists from torch_npu `since` until before `until`. `source` says where the contract is stated.
    """

    name: str
    body: Callable[..., Any]
    source: str
    host: tuple[str, ...] = ()
    since: str | None = None
    until: str | None = None
    namespace: str = "torch_npu"
    either: tuple[str, ...] = ()
    schema: str | None = None


OPERATORS: dict[str, Operator] = {}


def operator(
    name: str,
    *,
    host: tuple[str, ...] = (),
    source: str,
    since: str | None = None,
    until: str | None = None,
    namespace: str = "torch_npu",
    either: tuple[str, ...] = (),
    schema: str | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function as the body of operator `name`. Raises ValueError without a source or twice
    for one name.
    """
    if not source:
        raise ValueError(f"operator {name} states no source")

    def register(body: Callable[..., Any]) -> Callable[..., Any]:
        if name in OPERATORS:
            raise ValueError(f"operator {name} is registered twice")
        OPERATORS[name] = Operator(name, body, source, host, since, until, namespace, either, schema)
        return body

    return register
