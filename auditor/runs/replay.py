"""The replay: a run whose step left non-finite values behind is made once more, up to that step, to
see how they are born. It is a recording of its own inside the one that it explains.
"""

from __future__ import annotations

from auditor.recordings.folder import Recording
from auditor.recordings.schema import NonfiniteRow
from auditor.runs.child_process import add_warning
from auditor.runs.course import Course, Made, interrupt, seconds_to
from auditor.runs.progress import stage
from auditor.runs.rerun import keep_sources

ATTEMPTS = 2
"""Replays at most: one that goes bad before its watched steps (a GPU's quiet pass is not looked at)
is made again for that earlier step.
"""


def first_bad(made: Made) -> NonfiniteRow | None:
    """The first step that left non-finite values behind, of a run that nobody interrupted."""
    return (
        None
        if made.outcome == "interrupted"
        else NonfiniteRow.first(made.recording.rows(NonfiniteRow))
    )


def replay(course: Course, made: Made) -> None:
    """Explain the first bad step of what was ``made``; a warning says why, where nothing explains
    it.
    """
    bad, (plan, recording) = first_bad(made), made
    for _ in range(ATTEMPTS):
        if bad is None:
            return
        step = bad.global_step
        if course.left_s < seconds_to(recording, step):
            add_warning(recording, f"step {step} was not replayed: the time given is used up")
            return
        wanted = plan.replay(step, bad.last_good)
        stage(course.progress, "replay")
        again = course.again(wanted, course.deadline)
        if again is not None:
            keep_sources(recording, again)
        bad = NonfiniteRow.first(again.rows(NonfiniteRow)) if again is not None else None
        if again is not None and again.manifest["outcome"] == "interrupted":
            interrupt(recording, "replay", again)
            return
        if bad is None:
            add_warning(recording, f"the replay of step {step} {_why_not(again)}")
            return
        if bad.global_step >= wanted.watched.start:
            return


def _why_not(again: Recording | None) -> str:
    if again is None:
        return "could not be run"
    ended = again.manifest["outcome"]
    return (
        f"was cut off ({ended})"
        if ended in ("timeout", "interrupted")
        else "did not reproduce it (the target is not seeded?)"
    )
