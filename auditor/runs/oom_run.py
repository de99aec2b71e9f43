"""A run on a device that ran out of memory is made once more, up to the error, with an allocation
history from the beginning: then lines are known, and not only bytes.

It is a recording of its own inside the first one, of which the snapshot and the purposes of
addresses are read.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from auditor.errors import AuditProblem
from auditor.evidence.snapshot.file import has_history
from auditor.evidence.table import Evidence
from auditor.recordings.folder import Recording
from auditor.recordings.schema import StepRow
from auditor.runs import child_process
from auditor.runs.child_process import add_warning
from auditor.runs.plan import OOM_RUN, RERUN_PATIENCE, RERUN_PATIENCE_S, Plan
from auditor.runs.progress import Progress, stage
from auditor.runs.rerun import keep_sources


def explain_oom(
    plan: Plan, recording: Recording, deadline: float | None, progress: Progress
) -> None:
    """Run the target again where it ended out of memory on a device whose allocator is torch's own
    and no history was on.

    Says in a warning why that told nothing, where it did not.
    """
    wanted = recording.manifest["outcome"] == "oom" and recording.device.native
    if not wanted or recording.snapshot is None or has_history(Evidence(recording)):
        return
    rows = recording.own_rows(StepRow)
    took = max(((row.start_us + row.us) / 1e6 for row in rows), default=0.0)
    if deadline is not None and deadline - time.monotonic() < took:
        add_warning(recording, f"{NO_LINES}: the time given is used up (--timeout)")
        return
    patience = time.monotonic() + RERUN_PATIENCE_S + RERUN_PATIENCE * took
    until = patience if deadline is None else min(deadline, patience)
    stage(progress, "run up to the error")
    again = _once(plan.to_oom(len(rows)), until, progress)
    recording.__dict__.pop("to_oom", None)
    if again is not None and again.manifest["outcome"] == "interrupted":
        recording.manifest["outcome"] = "interrupted"
        add_warning(recording, "the run up to the error was interrupted")
    elif again is None or recording.to_oom is None:
        ended = "it could not be made" if again is None else "it did not run out of memory"
        add_warning(recording, f"{NO_LINES}: {ended} in a run with an allocation history")
        shutil.rmtree(Path(plan.folder) / OOM_RUN, ignore_errors=True)
    else:
        keep_sources(recording, again)


NO_LINES = "which lines held the memory is not known"


def _once(plan: Plan, deadline: float, progress: Progress) -> Recording | None:
    shutil.rmtree(plan.folder, ignore_errors=True)
    try:
        return child_process.record_apart(plan, deadline, progress, lambda text: None)
    except AuditProblem:
        return None
