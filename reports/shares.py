"""What shares on the pages are of, and how charts count steps: said in one place, so that no two
pages differ.
"""

from __future__ import annotations

from auditor import amounts
from auditor.model import Finding, Report
from auditor.model.prices import priced, share_of_step


def step_axis(report: Report) -> str:
    """How the steps of charts are counted."""
    return "step of the run, from 0, warm-up included" if report.run.recorded_at else "step"


def usual_step(report: Report) -> str:
    """What shares are of: ``mean step``, in reports of earlier versions ``median step``."""
    times = report.run.step_us
    return "median step" if times is not None and times.mean is None else "mean step"


def share(finding: Finding, report: Report) -> str:
    """``31%``: what its price is of the mean step; empty where one of the two is not known."""
    lost = priced(finding) if finding.proven_us is not None else None
    found = None if lost is None else share_of_step(lost, report.run.step_us)
    return "" if found is None else amounts.percent(found)
