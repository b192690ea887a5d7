"""Order of vllm-ascend versions, and which row speaks of a version."""

from packaging.version import InvalidVersion, Version

from ascend_vl.rules import rows
from ascend_vl.rules.table import table


def parse_version(text: str | None) -> Version | None:
    """The version, without a build's local part; None when it cannot be read.

    CANN's own spelling is read too: 8.2.RC1 is 8.2rc1.
    """
    if not text:
        return None
    try:
        return Version(text.strip().lower().replace(".rc", "rc").split("+")[0])
    except InvalidVersion:
        return None


def in_range(version: str | None, since: str | None, before: str | None) -> bool:
    """Whether `since` <= version < `before`. An unknown version is in every range that is open on both sides only."""
    if since is None and before is None:
        return True
    known = parse_version(version)
    if known is None:
        return False
    low, high = parse_version(since), parse_version(before)
    return (low is None or known >= low) and (high is None or known < high)


def version_row(version: str | None) -> rows.Version | None:
    """The row of exactly that vllm-ascend version; None for one the table does not know."""
    wanted = parse_version(version)
    if wanted is None:
        return None
    return next((row for row in table().versions if parse_version(row.release) == wanted), None)
