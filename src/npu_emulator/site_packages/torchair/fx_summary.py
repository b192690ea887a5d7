"""Reloaded by vllm-ascend 0.18.0 after it replaced ValuePack."""

from torchair.core._concrete_graph import ValuePack as ValuePack
