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
    if found is None:
        return ""
    return amounts.percent(found) if found <= 1 else "more than 100%"


def beside_step(us: float, report: Report, findings: int) -> str:
    """``38% of the mean step``, or that it is more than all of that, and why it can be; empty where
    no step was timed.
    """
    found = share_of_step(us, report.run.step_us)
    if found is None:
        return ""
    if found <= 1:
        return f"{amounts.percent(found)} of the {usual_step(report)}"
    why = "their prices share time, or some of it" if findings > 1 else "some of it"
    return f"more than the whole {usual_step(report)}: {why} lies outside the steps"


def one_by_one(together_us: float, alone_us: float, micro: str = "us") -> str:
    """What single prices come to, and why that is another number than all together."""
    why = "they overlap" if alone_us > together_us else "together they save more"
    return f"{amounts.duration(alone_us, micro)} one by one: {why}"
