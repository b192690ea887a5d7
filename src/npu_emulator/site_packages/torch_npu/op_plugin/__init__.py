"""Operator plug-ins."""
