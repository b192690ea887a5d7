"""Makes resolver.py importable, and says at the end of a run where the resolutions came from."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))


def pytest_terminal_summary(terminalreporter) -> None:
    from resolver import origins

    for origin in sorted(set(origins.values())):
        count = sum(value == origin for value in origins.values())
        terminalreporter.write_line(f"dependency resolutions: {count} {origin}")
