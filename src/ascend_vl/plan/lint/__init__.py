"""Reading somebody's command or script and saying what is wrong with it, by the rule table."""

from ascend_vl.plan.lint.findings import Finding, Report
from ascend_vl.plan.lint.judge import lint

__all__ = ["Finding", "Report", "lint"]
