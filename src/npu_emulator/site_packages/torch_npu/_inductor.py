"""Imported for effect by vllm-ascend; there is no compiler for the emulated NPU."""
