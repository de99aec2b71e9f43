"""An audit of steps N to N + steps of a job that runs anyway, driven by a framework's hooks. Never
stops the job: what fails here is told once, and training goes on.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from auditor.errors import fault

if TYPE_CHECKING:
    from auditor.api import Codes, Report, Watched

OUT = "audits/callback"


class StepAudit:
    """Begins when the job has taken ``start`` optimizer steps, and ends ``steps`` steps later: then
    the report is written to ``out``, and ``report`` is there.

    ``report`` stays None where the job ended too early, or the audit failed.
    """

    def __init__(
        self,
        start: int = 100,
        steps: int = 50,
        *,
        out: str | os.PathLike[str] = OUT,
        select: Codes = (),
        ignore: Codes = (),
    ) -> None:
        self.start, self.steps = start, steps
        self.report: Report | None = None
        self._asked = {"out": out, "select": select, "ignore": ignore}
        self._open: AbstractContextManager[Watched] | None = None
        self._watched: Watched | None = None
        self._began = 0
        self._over = False

    def step_ended(self, taken: int) -> None:
        """The job has taken ``taken`` optimizer steps."""
        if self._over:
            return
        if self._open is None:
            if taken >= self.start:
                self._guarded(lambda: self._begin(taken))
        elif taken > self._began + self.steps:  # the first step after the beginning is not seen
            self.close()

    def close(self, error: BaseException | None = None) -> None:
        """The audit is over, be it early: with the job, or with what it raised."""
        opened, self._open = self._open, None
        if opened is not None:
            self._over = True
            self._guarded(lambda: self._end(opened, error))

    def _begin(self, taken: int) -> None:
        from auditor import api

        opened = api.watching("", steps=self.steps, **self._asked)  # type: ignore[arg-type]
        self._watched = opened.__enter__()
        self._open, self._began = opened, taken

    def _end(self, opened: AbstractContextManager[Watched], error: BaseException | None) -> None:
        try:
            opened.__exit__(None if error is None else type(error), error, None)
        except BaseException as raised:
            if raised is not error:
                raise
        if self._watched is not None and self._watched.made:
            self.report = self._watched.report

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self._over = True
            said = f"the audit was given up ({fault(error)}); training goes on"
            warnings.warn(said, RuntimeWarning, stacklevel=4)
