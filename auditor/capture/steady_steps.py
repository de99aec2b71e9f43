"""Whether the steps of a pass are alike, so that more of them would show nothing new."""

from __future__ import annotations

from auditor.capture.probes.base import Context
from auditor.runs.plan import STEADY_STEPS


class SteadySteps:
    """Compares what the probes saw of each step with what they saw of the one before it: places in
    the source, as often as they were met, and rows, but for times and the steps' own numbers.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._before: object = None
        self._alike = 0

    def begins(self) -> None:
        """A pass begins."""
        self._before, self._alike = None, 0
        self._forget()

    def step_ends(self) -> None:
        """A step has ended, and its rows are written."""
        seen = (dict(self._context.rows), dict(self._context.frames.met))
        self._alike = self._alike + 1 if seen == self._before else 1
        self._before = seen
        self._forget()

    @property
    def enough(self) -> bool:
        """The last :data:`STEADY_STEPS` steps were alike."""
        return self._alike >= STEADY_STEPS

    def _forget(self) -> None:
        self._context.rows.clear()
        self._context.frames.met.clear()
