"""A run on a device that ran out of memory is made once more, up to the error, with an allocation
history from the beginning: then lines are known, and not only bytes.

It is a recording of its own inside the first one, of which the snapshot and the purposes of
addresses are read.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from auditor.evidence.snapshot.file import has_history
from auditor.evidence.table import Evidence
from auditor.recordings.schema import StepRow
from auditor.runs.child_process import add_warning
from auditor.runs.course import Course
from auditor.runs.plan import OOM_RUN, RERUN_PATIENCE, RERUN_PATIENCE_S
from auditor.runs.progress import stage
from auditor.runs.rerun import keep_sources


def lacks_history(course: Course) -> bool:
    """Whether the main run ended out of memory on a device whose allocator is torch's own, and no
    history was on.
    """
    recording = course.main.recording
    if course.main.outcome != "oom" or not recording.device.native or recording.snapshot is None:
        return False
    return not has_history(Evidence(recording))


def explain_oom(course: Course) -> None:
    """Run the target again, up to the error. Says in a warning why that told nothing, where it did
    not.
    """
    plan, recording = course.main
    rows = recording.own_rows(StepRow)
    took = max(((row.start_us + row.us) / 1e6 for row in rows), default=0.0)
    if course.left_s < took:
        add_warning(recording, f"{NO_LINES}: the time given is used up (--timeout)")
        return
    stage(course.progress, "run up to the error")
    until = course.within(RERUN_PATIENCE_S + RERUN_PATIENCE * took)
    again = course.again(plan.to_oom(len(rows)), until)
    recording.__dict__.pop("to_oom", None)
    if again is not None and again.manifest["outcome"] == "interrupted":
        course.interrupted("run up to the error", again)
    elif again is None or recording.to_oom is None:
        ended = "it could not be made" if again is None else "it did not run out of memory"
        add_warning(recording, f"{NO_LINES}: {ended} in a run with an allocation history")
        shutil.rmtree(Path(plan.folder) / OOM_RUN, ignore_errors=True)
    else:
        keep_sources(recording, again)


NO_LINES = "which lines held the memory is not known"
