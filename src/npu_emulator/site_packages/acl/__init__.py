"""Stands in for CANN's Python bindings; only names."""
