"""The rehearsal beside the last passes of the main run, which take no times, where there is a
processor and memory for both.

It is made in a copy of the project, as in its turn. What it wants to write outside of that copy
ends it, since the main run may use the same file. A rehearsal that fails is made again in its turn,
so that no failure is the other run's doing.
"""

import os
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from auditor import machine
from auditor.errors import AuditProblem
from auditor.recordings.folder import Recording
from auditor.recordings.schema.run import StepRow, known
from auditor.runs import child_process, rehearsal
from auditor.runs.course import Course, quiet, seconds_to
from auditor.runs.plan import BESIDE, OUTSIDE, Copied, Plan
from auditor.runs.progress import Display, Late, Progress, stage
from auditor.runs.project_copy import ProjectCopy
from auditor.runs.schedule import TIMELESS

ROOM = 2.0
"""Times the main run's resident memory that must be free."""


def possible(course: Course) -> bool:
    """Whether a rehearsal may follow the main run, and there is a processor for it."""
    run = course.audit.run
    return run.device == "auto" and bool(course.audit.rehearsed) and machine.processors() > 1


class Beside:
    """Begins the rehearsal when the main run comes to its first pass without times."""

    def __init__(self, course: Course) -> None:
        self._course = course
        self._run: _Run | None = None

    def watching(self, progress: Progress) -> Display:
        """Progress of the main run, which tells ``progress`` too."""
        return _Watch(progress, self._begin, self.discard)

    def holds(self, plan: Plan) -> bool:
        """Whether this rehearsal is under way, or over; another one is discarded."""
        if self._run is not None and self._run.plan() != plan:
            self.discard()
        return self._run is not None

    def recorded(self) -> Recording | None:
        """What the rehearsal recorded, after waiting for its end. None if it is made again."""
        run, self._run = self._run, None
        return None if run is None else run.recorded(self._course)

    def discard(self) -> None:
        """End a rehearsal under way, and remove what there is of it. May be called twice."""
        run, self._run = self._run, None
        if run is not None:
            run.discard()

    def _begin(self) -> None:
        if self._run is None:
            self._run = _Run(self._planned)

    def _planned(self) -> Plan | None:
        course = self._course
        recording = Recording(Path(course.audit.run.folder))
        rows = recording.rows(StepRow)
        resident = max((known(row.rss) or 0 for row in rows), default=0)
        room = resident and machine.free_memory() >= ROOM * resident
        if not room or recording.device.accelerator or course.left_s < 2 * seconds_to(recording):
            return None
        return rehearsal.of_completed(course.audit, recording)


class _Watch:
    """Told of the main run's progress as its display is. Another main run begins with a stage."""

    def __init__(
        self, progress: Progress, begin: Callable[[], None], discard: Callable[[], None]
    ) -> None:
        self._progress, self._begin, self._discard = progress, begin, discard

    def stage(self, name: str) -> None:
        self._discard()
        stage(self._progress, name)

    def outline(self, passes: list[tuple[str, int]]) -> None:
        if isinstance(self._progress, Display):
            self._progress.outline(passes)

    def __call__(self, name: str, done: int, steps: int) -> None:
        self._progress(name, done, steps)
        if name in TIMELESS:
            self._begin()


class _Run:
    """One rehearsal, in a copy of the project; ``planned`` gives its plan, or None for none."""

    def __init__(self, planned: Callable[[], Plan | None]) -> None:
        self._progress = Late()
        self._plan: Plan | None = None
        self._place: ProjectCopy | None = None
        self._apart: Plan | None = None
        self._child: child_process.Child | None = None
        self._begun, self._over = threading.Event(), threading.Event()
        threading.Thread(target=self._start, args=(planned,), daemon=True).start()

    def plan(self) -> Plan | None:
        """Its plan, once it has begun; None if it could not."""
        self._begun.wait()
        return self._plan if self._child is not None else None

    def _start(self, planned: Callable[[], Plan | None]) -> None:
        try:
            with suppress(Exception):  # it is made in its turn, which says what is wrong
                self._plan = planned()
                if self._plan is not None:
                    self._place = ProjectCopy(Path.cwd())
                    self._apart = _beside(self._place.plan(self._plan))
                    self._child = child_process.Child(self._apart, self._progress, quiet)
        finally:
            self._begun.set()
        self._over.wait()  # the kernel ends a child with the thread that started it

    def recorded(self, course: Course) -> Recording | None:
        self._begun.wait()
        assert self._plan is not None and self._place is not None and self._apart is not None
        folder, recording = Path(self._apart.folder), None
        self._progress.show(course.progress)
        try:
            with self._place, suppress(AuditProblem):
                recording = child_process.record(
                    self._apart, course.deadline, course.progress, quiet, self._child
                )
                if _outside(self._apart.copied) or not _counts(recording):
                    recording = None
        finally:
            self._over.set()
        if recording is None:
            shutil.rmtree(folder, ignore_errors=True)
            return None
        shutil.rmtree(self._plan.folder, ignore_errors=True)
        os.replace(folder, self._plan.folder)
        return Recording(Path(self._plan.folder), recording.manifest)

    def discard(self) -> None:
        self._begun.wait()
        if self._child is not None:
            self._child.process.kill()
            self._child.process.wait()
            self._child.leave()
        if self._place is not None:
            with self._place:
                pass
        if self._apart is not None:
            shutil.rmtree(self._apart.folder, ignore_errors=True)
        self._over.set()


def _beside(plan: Plan) -> Plan:
    """The plan in a folder of its own: nothing reads it as the rehearsal until it is over."""
    assert plan.copied is not None
    folder = str(Path(plan.folder).with_name(BESIDE))
    return replace(plan, folder=folder, copied=replace(plan.copied, beside=True))


def _outside(copied: Copied | None) -> bool:
    return copied is not None and Path(copied.kept, OUTSIDE).exists()


def _counts(recording: Recording) -> bool:
    """It ended as it would have ended alone, or nothing can be made again."""
    alone = recording.outcome in ("completed", "interrupted", "timeout", "oom")
    return alone or bool(rehearsal.limit_of(recording))
