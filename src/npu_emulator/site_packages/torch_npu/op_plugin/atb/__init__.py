"""Operators of the ATB library."""
