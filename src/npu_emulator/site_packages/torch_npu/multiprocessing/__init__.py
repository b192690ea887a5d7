"""Sharing NPU tensors between processes, which is not emulated."""
