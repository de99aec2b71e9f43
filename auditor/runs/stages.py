"""The stages of an audit, each a process and a recording: :data:`STAGES` says in which order they
come, what each needs and where it leaves its recording.

None disturbs the main run's times, nor breaks it: what goes wrong in a later stage becomes a
sentence in its warnings. Several ranks are neither replayed nor rehearsed
(:mod:`auditor.runs.ranks`).
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from typing import NamedTuple

from auditor.errors import TargetProblem
from auditor.recordings.folder import Recording
from auditor.runs import child_process, null_run, ranks, rehearsal
from auditor.runs.child_process import add_warning
from auditor.runs.course import Course, Made
from auditor.runs.oom_run import explain_oom, lacks_history
from auditor.runs.plan import NULL_RUN, OOM_RUN, REHEARSAL, REPLAY, RERUN, Audit, Plan
from auditor.runs.progress import Progress
from auditor.runs.rehearsal import needs_cuda, rehearse, rehearse_alone
from auditor.runs.replay import first_bad, replay
from auditor.runs.rerun import Early, alone, rerun

UNSET = re.compile(r"\b(?:LOCAL_)?RANK|\b(?:LOCAL_)?WORLD_SIZE|\bMASTER_(?:ADDR|PORT)")
"""Variables that a launcher sets (docs of torch.distributed.run, Environment Variables)."""


class Stage(NamedTuple):
    """What is done where ``needs`` holds, and the folder ``inside`` the main run's recording where
    it leaves its own.
    """

    name: str
    needs: Callable[[Course], bool]
    run: Callable[[Course], None]
    inside: str


def main_run(course: Course) -> None:
    """The target as it is; rehearsed instead where it cannot run without CUDA, and ``--device auto``
    found none.
    """
    run = course.audit.run
    given = course.deadline, course.progress, course.echo
    if run.rehearses:
        course.made.append(Made(run, rehearsal.checked(rehearsal.on_shadow(run, *given))))
        return
    try:
        recording = child_process.record(run, *given)
    except TargetProblem as problem:
        if run.device != "auto" or not needs_cuda(f"{problem.message} {problem.detail}"):
            raise
        failed = True
    else:
        failed = run.device == "auto" and _failed_without_cuda(recording)
    if failed:  # what it wrote before says nothing of the rehearsal
        shutil.rmtree(run.folder, ignore_errors=True)
        course.made.append(rehearse_alone(course))
        return
    course.made.append(Made(run, recording))
    _advise_a_launcher(run, recording)


def _second_run(course: Course) -> None:
    plan, recording = course.made[-1]
    rerun(plan, [recording], course.deadline, course.progress, alone)


def _failed_early(course: Course) -> bool:
    return Early.of([course.made[-1].recording]) is not None


def _rehearsed(course: Course) -> bool:
    return course.rehearsal is not None


def _beside(course: Course) -> bool:
    return len(course.made) > 1


def _complete(course: Course) -> bool:
    return rehearsal.wanted(course) and course.main.outcome == "completed"


STAGES = (
    Stage("main run", lambda course: True, main_run, ""),
    Stage("second run", _failed_early, _second_run, RERUN),
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
        "second run of the rehearsal",
        lambda course: _beside(course) and _failed_early(course),
        _second_run,
        f"{REHEARSAL}/{RERUN}",
    ),
    Stage(
        "replay of the rehearsal",
        lambda course: _beside(course) and first_bad(course.made[-1]) is not None,
        lambda course: replay(course, course.made[-1]),
        f"{REHEARSAL}/{REPLAY}",
    ),
    Stage("sources of the rehearsal", _beside, rehearsal.keep, ""),
    Stage("null device", _rehearsed, null_run.beside, NULL_RUN),
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
    for stage in STAGES:
        if stage.needs(course):
            stage.run(course)
        if course.main.recording.manifest.get("unwritten"):
            break
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
