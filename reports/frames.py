"""Findings as a pandas table, a row each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from auditor.model import Finding, Report

from . import summary

if TYPE_CHECKING:
    import pandas as pd

COLUMNS: dict[str, str] = {
    "code": "string",
    "name": "string",
    "severity": "string",
    "file": "string",
    "line": "Int64",
    "message": "string",
    "basis": "string",
    "us_per_step": "Float64",
    "us_per_step_low": "Float64",
    "us_per_step_high": "Float64",
    "bytes": "Int64",
    "times_per_step": "Float64",
    "steps": "Int64",
    "has_patch": "boolean",
    "safe_patch": "boolean",
    "baseline_state": "string",
    "key": "string",
}
"""Columns of :func:`findings` and their types; what is not known is ``<NA>``."""


def findings(report: Report) -> pd.DataFrame:
    """A row for each finding, in the report's order; :data:`COLUMNS` are there also without one.

    Times are in us and prices of the time that would come back, as in report.json. Raises
    ``ImportError`` where pandas is not installed.
    """
    import pandas as pd

    rows = [_row(finding) for finding in report.findings]
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


def _row(finding: Finding) -> dict[str, Any]:
    site, remedy = finding.site, finding.remedy
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": summary.severity(finding).value,
        "file": site.file if site else None,
        "line": site.line if site else None,
        "message": finding.message,
        "basis": finding.basis,
        "us_per_step": finding.lost_us_per_step,
        "us_per_step_low": finding.lost_us_per_step_low,
        "us_per_step_high": finding.lost_us_per_step_high,
        "bytes": finding.lost_bytes,
        "times_per_step": finding.per_step,
        "steps": finding.steps,
        "has_patch": bool(remedy and remedy.diff),
        "safe_patch": bool(remedy and remedy.diff and remedy.safe),
        "baseline_state": finding.baseline_state,
        "key": finding.key,
    }
