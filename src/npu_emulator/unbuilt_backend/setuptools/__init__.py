"""Stands in for setuptools while pip fetches a source distribution that must not be built: see build_meta."""
