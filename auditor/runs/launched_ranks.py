"""The ranks that a launcher started: rank 0 leads, the others follow, all in one folder."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from auditor.errors import TargetProblem
from auditor.recordings.folder import Recording, UnreadableRecording
from auditor.runs.child_process import Child
from auditor.runs.finalize import FOLLOWED, add_warning, seal
from auditor.runs.launchers import another_store
from auditor.runs.plan import AGAIN, AGAIN_S, RANK_FOLDER, Plan
from auditor.runs.progress import Progress, silent
from auditor.runs.project_copy import NoCopy
from auditor.runs.rank_meeting import DONE, Mark, RankMeeting
from auditor.runs.ranks import ALONE_S, BEHIND_S, Ended, prefixed

SEAL_S = 60.0
"""How long a rank whose target has ended may take to complete its recording."""

DECIDED_S = 600.0
"""How long a rank waits for rank 0 to say what follows: longer than any rank may be behind."""

LOOK_S = 0.5
"""Seconds between two looks at the other ranks."""


class LaunchedRanks:
    """What this process does in the job, run after run."""

    def __init__(self, meeting: RankMeeting) -> None:
        self.meeting = meeting
        self.runs = 0
        self._began = time.monotonic()

    # -- rank 0 ------------------------------------------------------------------------------------

    def shelter(self, plan: Plan) -> Any:
        """There is no copy of the working directory that all ranks see: raises :class:`NoCopy`."""
        raise NoCopy("a launcher started the ranks, and they share their files")

    def once(
        self, plan: Plan, deadline: float | None, progress: Progress, echo: Callable[[str], None]
    ) -> list[Recording]:
        """As rank 0: one run of all ranks; the recordings of those that could be read."""
        run = self.runs
        if run:
            assert plan.fit is not None, "a further run has other passes than the first"
            variables = another_store(os.environ)
            self.meeting.decide(run, {"steps": plan.fit, "variables": variables})
            plan = replace(plan, variables=variables)
            deadline = self._patient(deadline)
        own = self._run(plan, deadline, progress, echo)
        marks = self._all_marks(run)
        problem = next((mark.problem for mark in marks.values() if mark.problem), None)
        if problem is not None:
            raise TargetProblem(*problem)
        late = [rank for rank in range(self.meeting.own.world_size) if rank not in marks]
        for rank in late:
            add_warning(own, f"rank {rank} did not end: what it had recorded by then is judged")
        found = [own]
        for rank in range(1, self.meeting.own.world_size):
            with suppress(UnreadableRecording):  # said where the recordings are opened
                found.append(Recording(_folder(plan, rank)))
        return found

    def _all_marks(self, run: int) -> dict[int, Mark]:
        until = time.monotonic() + ALONE_S + SEAL_S
        while True:
            marks = self.meeting.marks(run)
            if len(marks) == self.meeting.own.world_size or time.monotonic() > until:
                return marks
            time.sleep(LOOK_S)

    # -- another rank ------------------------------------------------------------------------------

    def follow(self, plan: Plan, deadline: float | None, echo: Callable[[str], None]) -> None:
        """Do what rank 0 decides, until nothing follows, silently: rank 0 tells of it."""
        try:
            while True:
                self._run(plan, deadline, silent, echo)
                decided = self.meeting.decision(self.runs, DECIDED_S)
                if decided == DONE:
                    return
                plan = replace(plan, variables=decided["variables"]).fitted(decided["steps"])
                deadline = self._patient(deadline)
        except TargetProblem:
            self.meeting.decision(self.runs, DECIDED_S)
        finally:
            self.meeting.leave()

    # -- each --------------------------------------------------------------------------------------

    def _run(
        self, plan: Plan, deadline: float | None, progress: Progress, echo: Callable[[str], None]
    ) -> Recording:
        """Run the target of this rank once.

        Raises :class:`TargetProblem` if it cannot be run, after the others were told.
        """
        run, rank = self.runs, self.meeting.own.rank
        self.runs += 1
        own = replace(plan, folder=str(_folder(plan, rank)), rank=rank)
        mark = Mark(completed=False)
        try:
            child = Child(own, progress, prefixed(echo, rank))
            try:
                ended = self._wait(child, run, deadline)
            finally:
                child.leave()
            recording = seal(own, ended, child)
            mark = Mark(completed=recording.outcome == "completed")
            return recording
        except TargetProblem as problem:
            mark = Mark(completed=False, problem=(f"{problem.message} (rank {rank})", problem.hint))
            raise
        finally:
            self.meeting.mark(run, mark)

    def _patient(self, deadline: float | None) -> float:
        """When a further run ends at the latest."""
        now = time.monotonic()
        latest = now + AGAIN_S + AGAIN * (now - self._began)
        return latest if deadline is None else min(deadline, latest)

    def _wait(self, child: Child, run: int, deadline: float | None) -> Ended:
        """The exit code, or ``timeout``, ``interrupted``, :data:`FOLLOWED` where another rank has
        failed, or was done long before.
        """
        last: float | None = None
        try:
            while True:
                code = child.poll()
                if code is not None:
                    return code
                now = time.monotonic()
                if deadline is not None and now >= deadline:
                    child.ask_for_stacks()
                    child.end(signal.SIGINT)
                    return "timeout"
                marks = self.meeting.marks(run)
                if marks and last is None:
                    behind = all(mark.completed for mark in marks.values())
                    last = now + (BEHIND_S if behind else ALONE_S)
                if last is not None and now >= last:
                    child.end(signal.SIGINT)
                    return FOLLOWED
                time.sleep(LOOK_S)
        except KeyboardInterrupt:
            child.end(signal.SIGINT)
            return "interrupted"


def _folder(plan: Plan, rank: int) -> Path:
    return Path(plan.folder) / f"{RANK_FOLDER}{rank}"
