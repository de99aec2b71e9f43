"""The stages of an audit, each a process and a recording: :data:`STAGES` says in which order they
come, what each needs and where it leaves its recording.

None disturbs the main run's times, nor breaks it: what goes wrong in a later stage becomes a
sentence in its warnings. Several ranks are neither replayed nor rehearsed
(:mod:`auditor.runs.ranks`).
"""

import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from auditor.errors import TargetProblem
from auditor.evidence.snapshot.file import has_history
from auditor.evidence.table import Evidence
from auditor.recordings.folder import Recording
from auditor.recordings.schema.numerics import NonfiniteRow
from auditor.recordings.schema.run import StepRow
from auditor.runs import beside, child_process, null_run, ranks, rehearsal
from auditor.runs.course import Course, Made, interrupt, seconds_to
from auditor.runs.finalize import add_warning, keep_sources
from auditor.runs.plan import AGAIN, AGAIN_S, NULL_RUN, OOM_RUN, REHEARSAL, REPLAY, Audit, Plan
from auditor.runs.progress import Progress, stage
from auditor.runs.rehearsal import needs_cuda, rehearse, rehearse_alone

# -- replay ----------------------------------------------------------------------------------------
# The replay: a run whose step left non-finite values behind is made once more, up to that step, to
# see how they are born. It is a recording of its own inside the one that it explains.

ATTEMPTS = 2
"""Replays at most: one that goes bad before its watched steps is made again for that step."""


def first_bad(made: Made) -> NonfiniteRow | None:
    """The first step that left non-finite values behind, of a run that was not interrupted."""
    return (
        None
        if made.outcome == "interrupted"
        else NonfiniteRow.first(made.recording.rows(NonfiniteRow))
    )


def replay(course: Course, made: Made) -> None:
    """Explain the first bad step of what was ``made``; a warning says why nothing does."""
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


# -- stages ----------------------------------------------------------------------------------------

# -- oom run ---------------------------------------------------------------------------------------
# A run on a device that ran out of memory is made once more, up to the error, with an allocation
# history from the beginning: then lines are known, and not only bytes. It is a recording of its
# own inside the first one, of which the snapshot and the purposes of addresses are read.


def lacks_history(course: Course) -> bool:
    """Whether the main run ran out of memory of torch's own allocator without a history."""
    recording = course.main.recording
    if course.main.outcome != "oom" or not recording.device.native or recording.snapshot is None:
        return False
    return not has_history(Evidence(recording))


def explain_oom(course: Course) -> None:
    """Run the target again, up to the error. Warns why, if that told nothing."""
    plan, recording = course.main
    took = seconds_to(recording)
    if course.left_s < took:
        add_warning(recording, f"{NO_LINES}: the time given is used up (--timeout)")
        return
    stage(course.progress, "run up to the error")
    until = course.within(AGAIN_S + AGAIN * took)
    again = course.again(plan.to_oom(len(recording.rows(StepRow))), until)
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


# -- stages ----------------------------------------------------------------------------------------

UNSET = re.compile(r"\b(?:LOCAL_)?RANK|\b(?:LOCAL_)?WORLD_SIZE|\bMASTER_(?:ADDR|PORT)")
"""Variables that a launcher sets (docs of torch.distributed.run, Environment Variables)."""


class Stage(NamedTuple):
    """What is done where ``needs`` holds, and its folder ``inside`` the main recording, if any."""

    name: str
    needs: Callable[[Course], bool]
    run: Callable[[Course], None]
    inside: str


def main_run(course: Course) -> None:
    """The target as it is; rehearsed where CUDA is needed, and ``--device auto`` found none."""
    run, progress = course.audit.run, course.progress
    if run.rehearses:
        played = rehearsal.on_shadow(run, course.deadline, progress, course.echo)
        course.made.append(Made(run, rehearsal.checked(played)))
        return
    told = progress if course.beside is None else course.beside.watching(progress)
    try:
        recording = child_process.record(run, course.deadline, told, course.echo)
    except TargetProblem as problem:
        if run.device != "auto" or not needs_cuda(f"{problem.message} {problem.detail}"):
            raise
        failed = True
    else:
        failed = run.device == "auto" and _failed_without_cuda(recording)
    if failed:  # what it wrote before says nothing of the rehearsal
        _discard(course)
        shutil.rmtree(run.folder, ignore_errors=True)
        course.made.append(rehearse_alone(course))
        return
    course.made.append(Made(run, recording))
    _advise_a_launcher(run, recording)


def _discard(course: Course) -> None:
    if course.beside is not None:
        course.beside.discard()


def _beside(course: Course) -> bool:
    return len(course.made) > 1


def _complete(course: Course) -> bool:
    return rehearsal.wanted(course) and course.main.outcome == "completed"


STAGES = (
    Stage("main run", lambda course: True, main_run, ""),
    Stage("run up to the error", lacks_history, explain_oom, OOM_RUN),
    Stage(
        "replay",
        lambda course: first_bad(course.main) is not None,
        lambda course: replay(course, course.main),
        REPLAY,
    ),
    Stage("first findings", _complete, lambda course: course.announce(course.main.recording), ""),
    Stage("rehearsal", rehearsal.wanted, rehearse, REHEARSAL),
    Stage(
        "replay of the rehearsal",
        lambda course: _beside(course) and first_bad(course.made[-1]) is not None,
        lambda course: replay(course, course.made[-1]),
        f"{REHEARSAL}/{REPLAY}",
    ),
    Stage("sources of the rehearsal", _beside, rehearsal.keep, ""),
    Stage("null device", lambda course: course.rehearsal is not None, null_run.beside, NULL_RUN),
)


def record(
    audit: Audit,
    timeout: float | None,
    progress: Progress,
    echo: Callable[[str], None],
    launched: ranks.Ranks | None = None,
    *,
    announce: Callable[[Recording], None] = lambda recording: None,
) -> Recording:
    """The recording of an audit, with those of all its stages inside.

    ``timeout`` in s is for all of it; ``launched`` are the ranks where a launcher started them;
    ``announce`` is given the recording of the main run before its GPU path is rehearsed.
    Raises :class:`TargetProblem` when the target cannot be run at all; never raises for what the
    target does.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    if audit.run.world_size > 1:
        return ranks.record(audit.run, deadline, progress, echo, launched)
    course = Course(audit, deadline, progress, echo, announce=announce)
    if beside.possible(course):
        course.beside = beside.Beside(course)
    try:
        for further in STAGES:
            if further.needs(course):
                further.run(course)
            if course.main.recording.manifest.get("unwritten"):
                break
    finally:
        _discard(course)
    return course.main.recording


def _advise_a_launcher(plan: Plan, recording: Recording) -> None:
    """How to start a script that asked for a launcher's variables, and found none."""
    error = recording.manifest.get("error") or {}
    said = str(error.get("message", ""))
    found = UNSET.search(said)
    asked = error.get("type") == "KeyError" or "rendezvous" in said
    if recording.manifest["outcome"] == "raised" and asked and found is not None:
        program = plan.target
        add_warning(
            recording,
            f"the target asks for {found[0]}, which a launcher sets: audit run {program} --nproc 2 "
            "starts two ranks on this machine; with torchrun: audit run -- torchrun "
            f"--nproc-per-node 2 {program}",
        )


def _failed_without_cuda(recording: Recording) -> bool:
    error = recording.manifest.get("error") or {}
    last = "\n".join(str(error.get("traceback", "")).strip().splitlines()[-4:])
    return recording.manifest["outcome"] == "raised" and needs_cuda(
        f"{error.get('message', '')}\n{last}"
    )
