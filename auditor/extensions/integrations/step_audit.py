"""An audit of steps N to N + steps of a job that runs anyway, or a watch of all of it, driven by a
framework's hooks. Never stops the job: what fails here is told once, and training goes on.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from auditor.errors import fault

if TYPE_CHECKING:
    from auditor.api import Codes, Report, Watched
    from auditor.extensions.longrun.run import LongRun

OUT = "audits/callback"
"""Where nothing else is said; an audit of some steps adds the time, as ``audit run`` does."""


class StepAudit:
    """Begins when the job has taken ``start`` optimizer steps, and ends ``steps`` steps later: then
    the report is written to ``out``, and ``report`` is there.

    ``report`` stays None if the job ended too early, or the audit failed. With ``every`` the
    whole job is watched from step ``start`` on, as ``auditor.watch(every=...)`` does; ``run`` is
    that watch.
    """

    def __init__(
        self,
        start: int = 100,
        steps: int | None = None,
        *,
        every: int | None = None,
        out: str | os.PathLike[str] | None = None,
        select: Codes = (),
        ignore: Codes = (),
        **options: Any,
    ) -> None:
        if options and every is None:
            raise TypeError(f"{', '.join(options)}: only with every=")
        self.start, self.every = start, every
        self.steps = steps if steps is not None else 50 if every is None else None
        self.run: LongRun | None = None
        self.report: Report | None = None
        stamp = "" if every is not None else datetime.now().strftime("-%Y%m%d-%H%M%S")
        self.out = Path(OUT + stamp if out is None else out)
        self._asked: dict[str, Any] = {
            "out": self.out,
            "select": select,
            "ignore": ignore,
            **options,
        }
        self._open: AbstractContextManager[Watched] | None = None
        self._watched: Watched | None = None
        self._began = 0
        self._over = False

    def step_ended(self, taken: int) -> None:
        """The job has taken ``taken`` optimizer steps."""
        if self._over or self.run is not None:
            return
        if self._open is None:
            if taken >= self.start:
                self._guarded(lambda: self._begin(taken))
        elif taken > self._began + (self.steps or 0):
            # the first step after the beginning is not seen
            self.close()

    def close(self, error: BaseException | None = None) -> None:
        """The audit is over, be it early: with the job, or with what it raised."""
        if self.run is not None:
            self._over = True
            self.run.close(error)
        opened, self._open = self._open, None
        if opened is not None:
            self._over = True
            self._guarded(lambda: self._end(opened, error))

    def _begin(self, taken: int) -> None:
        from auditor import api

        if self.every is not None:
            run = api.long_run("", self.every, steps=self.steps, **self._asked)
            run.start()
            self.run = run
            return
        opened = api.watching("", steps=self.steps or 50, **self._asked)
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
