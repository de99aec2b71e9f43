"""An audit under way: what its stages hand on to one another."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from auditor.errors import AuditProblem
from auditor.recordings.folder import Recording
from auditor.recordings.schema.run import StepRow
from auditor.runs import child_process
from auditor.runs.finalize import add_warning
from auditor.runs.plan import Audit, Plan
from auditor.runs.progress import Progress

if TYPE_CHECKING:
    from auditor.runs.beside import Beside


class Made(NamedTuple):
    """A recording, and the plan by which it was made."""

    plan: Plan
    recording: Recording

    @property
    def outcome(self) -> str:
        """How the run ended."""
        return str(self.recording.manifest["outcome"])


@dataclass
class Course:
    """``deadline`` (``time.monotonic``) is for all stages; ``echo`` gets the main run's prints."""

    audit: Audit
    deadline: float | None
    progress: Progress
    echo: Callable[[str], None]
    made: list[Made] = field(default_factory=list)
    """The main run's recording, which the report is on, and a rehearsal's that can be judged, inside
    it. Where the target cannot run without a GPU the rehearsal is the main run.
    """
    announce: Callable[[Recording], None] = lambda recording: None
    """Given the main run's recording once no later stage changes its rows, before a rehearsal."""
    beside: Beside | None = None
    """What makes the rehearsal while the main run goes on, where that is possible."""

    @property
    def main(self) -> Made:
        """The main run."""
        return self.made[0]

    @property
    def rehearsal(self) -> Made | None:
        """The rehearsal, where there is one to be judged."""
        last = self.made[-1]
        return last if last.plan.rehearses and self.audit.run.device == "auto" else None

    @property
    def left_s(self) -> float:
        """Seconds left until the deadline."""
        return math.inf if self.deadline is None else self.deadline - time.monotonic()

    def within(self, seconds: float) -> float:
        """The deadline of a run that may take ``seconds``, by ``time.monotonic``."""
        patience = time.monotonic() + seconds
        return patience if self.deadline is None else min(self.deadline, patience)

    def again(self, plan: Plan, deadline: float | None) -> Recording | None:
        """A further run in a copy of the folder, replacing an earlier one; None if it cannot be."""
        shutil.rmtree(plan.folder, ignore_errors=True)
        try:
            return child_process.record_apart(plan, deadline, self.progress, quiet)
        except AuditProblem:
            return None

    def interrupted(self, name: str, further: Recording) -> None:
        """Ctrl-C in a run after the first ends the audit; what was recorded by then is judged."""
        interrupt(self.main.recording, name, further)


def interrupt(recording: Recording, name: str, further: Recording) -> None:
    """Mark a recording as interrupted, by what ended a ``further`` run of this ``name``."""
    manifest = recording.manifest
    manifest["error"] = manifest.get("error") or further.manifest.get("error")
    manifest["outcome"] = "interrupted"
    add_warning(recording, f"the {name} was interrupted")


def seconds_to(recording: Recording, step: int | None = None) -> float:
    """How long the run took to the end of a step (None: of its last), without the start."""
    rows = recording.rows(StepRow)[: None if step is None else step + 1]
    return max(((row.start_us + row.us) / 1e6 for row in rows), default=0.0)


def quiet(text: str) -> None:
    """What the target prints was shown by the main run."""
