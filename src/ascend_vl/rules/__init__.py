"""What goes with what: one validated table, read from data/*.yaml, and the questions asked of it."""

from ascend_vl.rules.table import Table, table
from ascend_vl.rules.versions import in_range, parse_version, version_row

__all__ = ["Table", "in_range", "parse_version", "table", "version_row"]
