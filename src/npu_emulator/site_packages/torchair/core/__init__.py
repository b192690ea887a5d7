"""Core of the graph compiler."""

from torchair.core import _concrete_graph as _concrete_graph
