"""Serve Qwen3-VL-family models on Ascend NPUs with vLLM, and prove that the answers are right."""

__version__ = "0.1.0"
