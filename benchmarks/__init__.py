"""Measurements and tables that are made by running things; see docs/en/matrix.md."""
