"""Audits as tests: ``assert_no_findings(step)`` (docs/python.md); also pytest's marker, fixture."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from auditor.api import Report

__all__ = ["FindingsFound", "assert_no_findings", "check"]


class FindingsFound(AssertionError):
    """An audit found what a test does not allow, or could not look; ``report`` has all of it."""

    def __init__(self, message: str, report: Report) -> None:
        super().__init__(message)
        self.report = report


def assert_no_findings(
    step: str | Callable[..., Any], *, fail_on: str = "warning", **options: Any
) -> Report:
    """Audit a step (``options`` as for :func:`auditor.audit`), and return its report.

    Raises :class:`FindingsFound` if a finding is as bad as ``fail_on`` (``error``, ``warning``
    or ``note``): the message has line, price and patch. So it does where the step failed, a rule
    broke, or none of the selected rules could look.
    """
    from auditor import api

    report = api.audit(step, **options)
    check(report, fail_on)
    return report


def check(report: Report, fail_on: str = "warning") -> None:
    """Raise :class:`FindingsFound` as :func:`assert_no_findings` does."""
    __tracebackhide__ = True
    problem = _unfinished(report) or _unlooked(report)
    if problem:
        raise FindingsFound(problem, report)
    found = report.at_least(fail_on)
    if found:
        from auditor.amounts import count
        from auditor.judging import catalogue

        told = catalogue.reports("failures").told(found)
        opening = f"{count(len(found), 'finding')} in {report.run.target}"
        raise FindingsFound(f"{opening}\n{told}", report)


def _unfinished(report: Report) -> str:
    run = report.run
    if run.outcome == "completed":
        return ""
    error = run.error
    said = f": {error.type}: {error.message}\n{error.traceback}" if error else ""
    return f"the step did not complete ({run.outcome}){said}"


def _unlooked(report: Report) -> str:
    """Why no finding would prove nothing; empty if it proves something."""
    broken = [each for each in report.verdicts if each.status == "failed"]
    if broken:
        return "\n".join(f"{each.code} broke: {each.reason}" for each in broken)
    if any(each.status in ("found", "clean") for each in report.verdicts):
        return ""
    reasons = [f"{each.code}: {each.reason}" for each in report.verdicts]
    return "\n".join(["no rule could be checked", *reasons])
