"""Names of torch_npu.utils."""
