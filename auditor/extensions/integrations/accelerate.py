"""``AuditTracker`` for Accelerate: ``Accelerator(log_with=[AuditTracker(start=100, steps=50)])``."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from accelerate.tracking import GeneralTracker

from auditor.extensions.integrations.step_audit import StepAudit

if TYPE_CHECKING:
    from auditor.api import Report

LOG = logging.getLogger("auditor")


class AuditTracker(GeneralTracker):  # type: ignore[misc]
    """Audits ``steps`` (50) optimizer steps of the main process of a job that has taken ``start``,
    and writes the report while the job goes on; with ``every`` it watches the job from there on.
    Takes what :class:`StepAudit` takes.

    A tracker hears of the job by ``accelerator.log(...)``: the audit begins and ends there. The
    logger ``auditor`` tells what was found; ``log_to`` (as in ``auditor.watch``) gets the number of
    findings.
    """

    name = "audit"
    requires_logging_directory = False
    main_process_only = True

    def __init__(
        self, start: int = 100, steps: int | None = None, *, log_to: Any = None, **options: Any
    ) -> None:
        super().__init__()
        from auditor.extensions.longrun import trackers

        self._sink = trackers.sink(log_to)
        if "every" in options and log_to is not None:
            options["log_to"] = log_to
        self.audit = StepAudit(start, steps, **options)
        self.steps = 0
        """Optimizer steps since ``init_trackers``."""
        self._counting: Any = None
        self._told = self._inside = False

    @property
    def tracker(self) -> StepAudit:
        """What ``accelerator.get_tracker("audit", unwrap=True)`` returns: ``report`` is there."""
        return self.audit

    def start(self) -> None:
        """``accelerator.init_trackers``: from here on steps are counted."""
        from torch.optim.optimizer import register_optimizer_step_post_hook

        if self._counting is None:
            self._counting = register_optimizer_step_post_hook(self._stepped)

    def log(self, values: Mapping[str, Any], step: int | None = None, **_: Any) -> None:
        """Between two steps of the job. ``log_to`` may lead here again."""
        if self._inside or self._counting is None:
            return
        self._inside = True
        try:
            self.audit.step_ended(self.steps)
            self._tell()
        finally:
            self._inside = False

    def finish(self) -> None:
        """``accelerator.end_training``: a job that ends early has a report of what was seen."""
        counting, self._counting = self._counting, None
        if counting is not None:
            counting.remove()
        self.audit.close()
        self._inside = True
        self._tell()

    def _stepped(self, *_: Any) -> None:
        self.steps += 1

    def _tell(self) -> None:
        report = self.audit.report
        if report is None or self._told:
            return
        self._told = True
        LOG.warning("%s; %s", _summary(report), self.audit.out / "report.html")
        try:
            self._sink({"audit/findings": float(len(report.findings))}, self.steps)
        except Exception as error:  # whatever a tracker raises: it is the user's
            LOG.warning("log_to: %s: %s", type(error).__name__, error)


def _summary(report: Report) -> str:
    if not report.findings:
        return "no finding"
    first, more = report.findings[0], len(report.findings) - 1
    place = f"{first.site}: " if first.site else ""
    return f"{place}{first.code}: {first.message}{f', and {more} more' if more else ''}"
