"""Recording in the user's own process: for steps that no other process can repeat, as a function of
a test or of a notebook, or a loop that runs anyway.

What the parent of a recording child does from outside cannot be done here: there is no rehearsal,
no second run, no time limit, and a process that dies leaves no report.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from auditor.capture.child import Recorder
from auditor.errors import AuditProblem, fault
from auditor.recordings.folder import Recording
from auditor.runs.finalize import Known, seal
from auditor.runs.target import Address

if TYPE_CHECKING:
    from collections.abc import Iterator

    from auditor.runs.plan import Plan

_ONE = threading.Lock()


@contextmanager
def alone() -> Iterator[None]:
    """Two audits of one process would see each other: AuditProblem; also beside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        raise AuditProblem("a step is audited in this process only from its main thread")
    if not _ONE.acquire(blocking=False):
        raise AuditProblem("another audit is going on in this process", "wait for it to end")
    try:
        yield
    finally:
        _ONE.release()


class Here(Recorder):
    """A recording of steps that this process takes; ``file`` is where the user's code lies."""

    in_process = True

    def __init__(self, plan: Plan, file: str) -> None:
        super().__init__(plan, Address(plan.target, path=file or os.path.join(os.getcwd(), "x")))
        self._given_up = False

    def call(self, step: Callable[[], Any]) -> None:
        """Take all steps of the plan. What ``step`` raises becomes the recording's error."""
        try:
            self._prepare()
            session = self._ready(step)
            self._protected(lambda: self._loop(session, step))
        finally:
            self._wind_up()

    def watch(self) -> None:
        """From now on each step of an optimizer ends one of the plan's."""
        from auditor.capture.target.script_steps import StepFinder

        self.kind = "script"
        self._prepare()
        self._finder = StepFinder(self.on_step, self._place)
        self._finder.install()

    def watch_told(self, *said: str) -> None:
        """As :meth:`watch`, for a caller of :meth:`on_step`; ``said``: sentences for the report."""
        self.kind = "script"
        self._prepare()
        for each in said:
            self._warn(each)

    @property
    def over(self) -> bool:
        """Whether there is no more to be seen: all steps are taken, or a fault ended it."""
        session = self.session
        done = session is not None and session.done and not self._in_step
        return done or self._given_up or bool(self.writer.lost) or self.writer.forked

    @property
    def _in_step(self) -> bool:
        return self.context is not None and self.context.in_step

    def on_step(self) -> None:
        """An optimizer has stepped. A fault of ours ends the audit, and never the user's loop."""
        if self._given_up:
            return
        try:
            self._next_step(None)
        except Exception as error:
            self._given_up = True
            self._warn(f"the audit stopped inside the loop ({fault(error)})")
            if self.session is not None:
                self.session.broken()

    def leave(self, error: BaseException | None) -> None:
        """The watched block is over, or raised ``error``. Its last step does not count."""
        session, context = self.session, self.context
        if self._finder is not None:
            self._finder.uninstall()
        try:
            if session is None or context is None:
                return
            if error is not None:
                outcome = "interrupted" if isinstance(error, KeyboardInterrupt) else "raised"
                self._failed(outcome, error)
                return
            self.outcome = "completed"
            if context.in_step:
                session.broken()
        finally:
            self._wind_up()

    @property
    def short(self) -> str:
        """What was left to do when the block ended; empty if all was done."""
        session = self.session
        if session is None or session.done:
            return ""
        done = sum(each.done for each in session.passes)
        return (
            f"{done} of {sum(each.steps for each in session.schedule.planned) or self.plan.steps}"
        )

    def sealed(self) -> Recording:
        """The recording with its sources. Raises :class:`TargetProblem` if there is none."""
        return seal(self.plan, 0, Known())
