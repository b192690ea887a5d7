"""What happens inside one block of vLLM's model during one request: each known operator, judged on its own inputs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ascend_vl.verify import operators
from ascend_vl.verify.towers import wrap
from ascend_vl.verify.weights import CheckpointTensors, compare_module

# Enough for one prefill of one request; a block runs each operator once, or twice for q and k.
MOST_CALLS = 64


def engine_path(point: str) -> str:
    """A point's module in vLLM's tree."""
    if point == "logits":
        return "language_model.logits_processor"
    if point == "embeddings":
        return ""
    return point if point.startswith("visual.") else point.replace("language_model.", "language_model.model.", 1)


class BlockWatch:
    """Records the calls of every known operator at or below one module."""

    def __init__(self, model: Any, point: str) -> None:
        self.path = engine_path(point)
        self.model = model
        self.calls: list[tuple[str, Any, dict[str, Any]]] = []
        block = model.get_submodule(self.path)
        named = [(f"{self.path}.{name}".rstrip("."), module) for name, module in block.named_modules()]
        self._undo = [wrap(module, self._recorder(name, module)) for name, module in named if operators.kind_of(module)]

    def stop(self) -> None:
        """Leave the block as it was."""
        for undo in reversed(self._undo):
            undo()
        self._undo = []

    def _recorder(self, name: str, module: Any) -> Callable[..., Any]:
        def around(forward: Callable[..., Any], *given: Any, **named: Any) -> Any:
            if len(self.calls) >= MOST_CALLS:
                return forward(*given, **named)
            # Copied before the call: fused operators write into their inputs.
            call: dict[str, Any] = {
                "args": [copied(v) for v in given],
                "kwargs": {k: copied(v) for k, v in named.items()},
            }
            output = forward(*given, **named)
            call["output"] = [copied(v) for v in output] if isinstance(output, tuple | list) else copied(output)
            self.calls.append((name, module, call))
            return output

        return around


def copied(value: Any) -> Any:
    """A tensor's copy on the CPU; anything else as it is."""
    return value.detach().to("cpu", copy=True) if isinstance(value, torch.Tensor) else value


def judged(watch: BlockWatch, base: Path, own: Path, borders: list[int], out: Path) -> dict[str, Any]:
    """{"operators": verdicts in order of running, "weights": parameters unlike the engine's own checkpoint}.

    Operators are replayed with the weights of the engine's checkpoint (`own`) and the settings of `base`'s config; the
    inputs of the one furthest outside are written to out/inputs.pt.
    """
    tensors = CheckpointTensors(own)
    config = {**json.loads((base / "config.json").read_text(encoding="utf-8")), "borders": borders}
    verdicts = []
    furthest = 0.0
    for name, module, call in watch.calls:
        target = operators.first(call["output"])
        verdict = operators.judge(name, module, call, tensors.of_module(name, target.dtype), config)
        verdicts.append(verdict)
        outside = verdict["target_error"] / verdict["limit"] if verdict.get("limit") else float("inf")
        if verdict["verdict"] == "FAIL" and outside > furthest:
            furthest = outside
            values = {"weights": tensors.of_module(name, target.dtype), "config": config, **plain_call(call)}
            torch.save(values, out / "inputs.pt")
    return {"operators": verdicts, "weights": compare_module(watch.model, watch.path, tensors)}


def plain_call(call: dict[str, Any]) -> dict[str, Any]:
    """The tensors and plain values of a call."""
    keep = (torch.Tensor, int, float, bool, str, type(None))
    return {
        "args": [v if isinstance(v, keep) else repr(type(v)) for v in call["args"]],
        "kwargs": {k: v if isinstance(v, keep) else repr(type(v)) for k, v in call["kwargs"].items()},
        "output": operators.first(call["output"]),
    }
