"""What happens inside one block of vLLM's model during one request: each known operator, judged on its own inputs."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from ascend_vl.verify import npu_functions, operators, shards
from ascend_vl.verify.towers import wrap
from ascend_vl.verify.weights import CheckpointTensors, compare_module

# Enough for one prefill of one request; a block runs each operator once, or twice for q and k.
MOST_CALLS = 64
ATTENTION = "text attention"
Call = tuple[str, Any, dict[str, Any]]


def engine_path(point: str) -> str:
    """A point's module in vLLM's tree."""
    if point == "logits":
        return "language_model.logits_processor"
    if point == "embeddings":
        return ""
    return point if point.startswith("visual.") else point.replace("language_model.", "language_model.model.", 1)


class BlockWatch:
    """Records the calls of every known operator at or below one module: of one prefill, or of the last pass.

    With `last_pass` what earlier passes did is dropped, but for text attention, whose keys and values stay in the
    cache and belong to the last pass too.
    """

    def __init__(self, model: Any, point: str, last_pass: bool = False) -> None:
        self.path = engine_path(point)
        self.model = model
        self.last_pass = last_pass
        self.calls: list[Call] = []
        block = model.get_submodule(self.path)
        named = [(f"{self.path}.{name}".rstrip("."), module) for name, module in block.named_modules()]
        self._undo = [wrap(module, self._recorder(name, module)) for name, module in named if operators.kind_of(module)]
        kinds = {operators.kind_of(module) for _, module in named}
        if ".blocks." in self.path and "vision attention" not in kinds:
            self._undo += npu_functions.wrapped(self._called, copied)
        self._inside = False
        self._undo.append(wrap(block, self._pass))

    def stop(self) -> None:
        """Leave the block as it was."""
        for undo in reversed(self._undo):
            undo()
        self._undo = []

    def _pass(self, forward: Callable[..., Any], *given: Any, **named: Any) -> Any:
        if self.last_pass:
            self.calls = [call for call in self.calls if operators.kind_of(call[1]) == ATTENTION]
        self._inside = True
        try:
            return forward(*given, **named)
        finally:
            self._inside = False

    def _called(self, name: str, marker: Any, call: dict[str, Any]) -> None:
        """A function of torch_npu ran; other blocks call it too."""
        if self._inside and len(self.calls) < MOST_CALLS:
            self.calls.append((f"{self.path}.{name}", marker, call))

    def _recorder(self, name: str, module: Any) -> Callable[..., Any]:
        def around(forward: Callable[..., Any], *given: Any, **named: Any) -> Any:
            if len(self.calls) >= MOST_CALLS and not self.last_pass:
                return forward(*given, **named)
            # Copied before the call: fused operators write into their inputs.
            call: dict[str, Any] = {
                "args": [copied(v) for v in given],
                "kwargs": {k: copied(v) for k, v in named.items()},
            }
            output = forward(*given, **named)
            # A module that several blocks share (an activation) is this block's only while the block runs.
            if not self._inside:
                return output
            call["output"] = [copied(v) for v in output] if isinstance(output, tuple | list) else copied(output)
            # The head's logits stand on the first rank only.
            if output is not None:
                self.calls.append((name, module, call))
            return output

        return around


def copied(value: Any) -> Any:
    """A tensor's copy on the CPU; anything else as it is."""
    return value.detach().to("cpu", copy=True) if isinstance(value, torch.Tensor) else value


def judged(watch: BlockWatch, base: Path, own: Path, borders: list[int], out: Path) -> dict[str, Any]:
    """{"operators": verdicts in order of running, "weights": parameters unlike the engine's own checkpoint}.

    Operators are replayed with the weights of the engine's checkpoint (`own`) and the settings of `base`'s config; the
    inputs of the one furthest outside are written to out/inputs.pt. Every tensor-parallel rank must call this.
    """
    tensors = CheckpointTensors(own)
    config = {**json.loads((base / "config.json").read_text(encoding="utf-8")), "borders": borders}
    verdicts = []
    furthest = 0.0
    for name, module, call in joined(watch.calls):
        weights = held_weights(tensors, name, module, operators.first(call["output"]).dtype)
        verdict = operators.judge(name, module, call, weights, config)
        verdicts.append(verdict)
        outside = verdict["target_error"] / verdict["limit"] if verdict.get("limit") else float("inf")
        if verdict["verdict"] == "FAIL" and outside > furthest:
            furthest = outside
            out.mkdir(parents=True, exist_ok=True)
            torch.save({"weights": weights, "config": config, **plain_call(call)}, out / "inputs.pt")
    return {"operators": verdicts, "weights": compare_module(watch.model, watch.path, tensors)}


def held_weights(tensors: CheckpointTensors, name: str, module: Any, dtype: torch.dtype) -> Mapping[str, torch.Tensor]:
    """The weights that replay a call: this rank's part, or all of it where the input is gathered (see `joined`)."""
    whole = tensors.of_module(name, dtype)
    if shards.sums_ranks(module) or operators.kind_of(module) == "logits" or getattr(module, "gather_output", False):
        return whole
    return {leaf: shards.of_rank(module, leaf, value) for leaf, value in whole.items()}


def joined(calls: list[Call]) -> list[Call]:
    """The calls as they can be replayed: inputs of all ranks side by side where the layer sums over ranks, and text
    attention with the keys and values of all passes.
    """
    found: list[Call] = []
    passes: dict[str, list[dict[str, Any]]] = {}
    for name, module, call in calls:
        if shards.sums_ranks(module) and getattr(module, "input_is_parallel", True):
            entering = operators.first_input(call)
            assert entering is not None
            whole = torch.cat(shards.gather(entering), -1)
            found.append((name, module, {**call, "args": [whole], "kwargs": {}}))
        elif operators.kind_of(module) == ATTENTION:
            passes.setdefault(name, []).append(call)
            found = [item for item in found if item[0] != name]
            found.append((name, module, with_cache(passes[name])))
        else:
            found.append((name, module, call))
    return found


def with_cache(calls: list[dict[str, Any]]) -> dict[str, Any]:
    """The last of a layer's calls of attention over (query, key, value), with keys and values of all of them."""
    inputs = [operators.floats(call)[:3] for call in calls]
    if len(inputs) == 1 or any(len(tensors) < 3 for tensors in inputs):
        return calls[-1]
    key, value = (torch.cat([tensors[index] for tensors in inputs]) for index in (1, 2))
    return {**calls[-1], "args": [inputs[-1][0], key, value], "kwargs": {}}


def plain_call(call: dict[str, Any]) -> dict[str, Any]:
    """The tensors and plain values of a call."""
    keep = (torch.Tensor, int, float, bool, str, type(None))
    return {
        "args": [v if isinstance(v, keep) else repr(type(v)) for v in call["args"]],
        "kwargs": {k: v if isinstance(v, keep) else repr(type(v)) for k, v in call["kwargs"].items()},
        "output": operators.first(call["output"]),
    }
