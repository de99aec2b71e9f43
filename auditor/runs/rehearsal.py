"""The rehearsal: a few steps of the target's GPU path on a shadow CUDA device, where there is no
real one. Where the target cannot run without CUDA, it is the main run.
"""

import itertools
import re
import shutil
from collections.abc import Callable
from dataclasses import replace

from auditor.cycles import prolonged, whole_cycles
from auditor.errors import AuditProblem, TargetProblem
from auditor.recordings.folder import SITES, Recording
from auditor.recordings.schema.numerics import NonfiniteRow
from auditor.recordings.schema.run import StepRow
from auditor.recordings.schema.sync import DeviceUseRow, LimitRow
from auditor.runs import child_process
from auditor.runs.course import Course, Made, quiet
from auditor.runs.finalize import add_warning, counted, keep_sources, raised
from auditor.runs.null_run import COMPARED
from auditor.runs.plan import (
    LEAST_FAILED,
    LEAST_REHEARSED,
    REHEARSED_SLOWER,
    REHEARSED_STEPS,
    Audit,
    Passes,
    Plan,
)
from auditor.runs.progress import Progress, stage
from auditor.runs.project_copy import sheltered

FORKED = "Cannot re-initialize CUDA in forked subprocess"
"""What torch says where a worker process asks for CUDA, and the shadow device with it."""

MOST_FRAMES = 100
_FRAME = re.compile(r'^ *File "([^"\n]+)", line (\d{1,7}),', re.MULTILINE)


# -- beside the main run ---------------------------------------------------------------------------


def wanted(course: Course) -> bool:
    """Whether the GPU path is still to be rehearsed, beside a run that found no GPU."""
    plan, recording = course.main
    return (
        plan.device == "auto" and not recording.device.accelerator and bool(course.audit.rehearsed)
    )


def rehearse(course: Course) -> None:
    """Rehearse what the main run did.

    The recording stays only if it can be judged: enough steps completed, and the target did use the
    device. Of one that ran out of memory the snapshot stays, which says why.
    """
    recording = course.main.recording
    plan = _planned(course)
    if plan is None:
        return
    begun = course.beside if course.beside is not None and course.beside.holds(plan) else None
    took_s = max((row.start_us for row in recording.rows(StepRow)), default=0.0) / 1e6
    if begun is None and course.left_s < 2 * took_s:
        add_warning(recording, "the GPU path was not rehearsed: the time given is used up")
        return
    rehearsed = None
    stage(course.progress, "rehearsal")
    try:
        rehearsed = begun.recorded() if begun is not None else None
        if rehearsed is None:
            rehearsed = _apart(plan, course, child_process.record)
        why = unfit(rehearsed)
    except AuditProblem as problem:
        why = our_limit(problem.message) or problem.message
    interrupted = rehearsed is not None and rehearsed.manifest["outcome"] == "interrupted"
    if rehearsed is not None and interrupted:
        course.interrupted("rehearsal of the GPU path", rehearsed)
    elif why:
        if rehearsed is not None:
            recording.manifest["cuda_in_worker"] = _frames_in_worker(rehearsed)
        add_warning(recording, f"the GPU path could not be rehearsed: {why}")
    explained = (
        rehearsed is not None
        and rehearsed.outcome == "oom"
        and not limit_of(rehearsed)
        and rehearsed.snapshot is not None
    )
    if rehearsed is not None and why and explained:
        for part in rehearsed.folder.glob("*.jsonl"):
            if part.stem != SITES:
                part.unlink()
        keep_sources(recording, rehearsed)
    elif rehearsed is None or why:
        shutil.rmtree(plan.folder, ignore_errors=True)
    else:
        course.made.append(Made(plan, rehearsed))


def keep(course: Course) -> None:
    """Write the sources that the rehearsal, and what explains it, point at."""
    keep_sources(course.main.recording, course.made[-1].recording)


def _planned(course: Course) -> Plan | None:
    """Rehearsal of a completed target, or of its steps before it failed; None without any."""
    plan, recording = course.main
    outcome, steps = recording.manifest["outcome"], sum(counted(recording.folder).values())
    if outcome == "completed":
        planned = of_completed(course.audit, recording)
        said = prolonged(planned.steps)
        if planned.steps > REHEARSED_STEPS and said not in recording.manifest["warnings"]:
            add_warning(recording, said)
        return planned
    fits = outcome != "interrupted" and steps >= LEAST_FAILED
    return plan.rehearsal(_parts(course.audit, recording)).fitted(steps) if fits else None


def of_completed(audit: Audit, recording: Recording) -> Plan:
    """The rehearsal beside a main run that does not fail; its passes that take times are over."""
    rows = (row for row in recording.rows(StepRow) if row.pass_name == "quiet")
    us = [row.us - row.queued_us for row in rows]
    steps = whole_cycles(us, REHEARSED_STEPS, audit.run.steps, REHEARSED_SLOWER)
    return audit.run.rehearsal(_parts(audit, recording), steps)


def _parts(audit: Audit, recording: Recording) -> tuple[str, ...]:
    if not recording.rows(NonfiniteRow):
        return audit.rehearsed
    # the replay on the CPU tells of it, once
    return tuple(part for part in audit.rehearsed if part != NonfiniteRow.part)


# -- alone -----------------------------------------------------------------------------------------


def rehearse_alone(course: Course) -> Made:
    """The rehearsal of a target that cannot run without CUDA, as the main run."""
    stage(course.progress, "rehearsal")
    run, compared = course.audit.run, COMPARED if course.audit.native else ()
    played = replace(
        run.on_shadow(REHEARSED_STEPS),
        parts=tuple(dict.fromkeys((*run.parts, *compared))),
        purpose=Passes(trace=0, values=max(0, run.steps - REHEARSED_STEPS)),
    )
    recording = checked(_apart(played, course, on_shadow, course.echo))
    add_warning(
        recording,
        "the target cannot run without CUDA, and there is none: only its rehearsal was audited, "
        "without times",
    )
    return Made(played, recording)


def on_shadow(
    plan: Plan, deadline: float | None, progress: Progress, echo: Callable[[str], None]
) -> Recording:
    """A run on the shadow device. Raises :class:`TargetProblem` if it cannot be made."""
    try:
        return child_process.record(plan, deadline, progress, echo)
    except TargetProblem as problem:
        ours = our_limit(problem.message)
        if not ours:
            raise
        raise TargetProblem(
            f"the GPU path cannot be rehearsed: {ours}",
            "--device cpu audits the rest",
            problem.detail,
        ) from None


def checked(recording: Recording) -> Recording:
    """The recording, if it can be judged; else raises :class:`TargetProblem`."""
    ours = (
        our_limit(*raised(recording.manifest)) if recording.manifest["outcome"] == "raised" else ""
    )
    why = limit_of(recording) or ours or unused(recording)
    if why:
        raise TargetProblem(
            f"the GPU path cannot be rehearsed: {why}", "--device cpu audits the rest"
        )
    return recording


def _apart(
    plan: Plan,
    course: Course,
    record: Callable[..., Recording],
    echo: Callable[[str], None] = quiet,
) -> Recording:
    """A run in a copy of the working directory: the target ran there once, and would write a second
    time.

    Raises :class:`AuditProblem` if no copy can be made.
    """
    with sheltered(plan) as apart:
        return record(apart, course.deadline, course.progress, echo)


# -- what was rehearsed ------------------------------------------------------------------------------


def _frames_in_worker(rehearsed: Recording) -> list[dict[str, str | int]] | None:
    """Where a worker that asked for CUDA ended the rehearsal, outermost first; else None."""
    said = str((rehearsed.manifest.get("error") or {}).get("message", ""))
    if FORKED not in said or "DataLoader worker" not in said:
        return None
    return [
        {"file": found[1], "line": int(found[2])}
        for found in itertools.islice(_FRAME.finditer(said), MOST_FRAMES)
    ]


# -- whether it can be judged -----------------------------------------------------------------------

NO_CUDA = re.compile(
    r"not compiled with CUDA|No CUDA GPUs are available|no NVIDIA driver|not linked with support for cuda"
    r"|doesn't have NCCL built in|ProcessGroupNCCL is only supported with GPUs"
    r"|torch\.cuda\.is_available\(\) is False|cuda\.is_available|Cannot access accelerator device when none is available"
    r"|module 'torch\._C' has no attribute '_cuda_|\bcuda(Accelerator)?\b.*\bnot available\b|requires? (a )?(CUDA|GPU)"
    r"|\bno\b[^.,]{0,30}\b(CUDA|GPU)\b[^.,]{0,30}\b(found|available|detected)\b",
    re.IGNORECASE,
)
"""How torch, and programs, say that they cannot go on without CUDA."""


OUR_LIMIT = re.compile(
    r"'CUDA' backend|Cannot access accelerator device when none is available|not compiled with CUDA|compiled without CUDA"
    r"|not linked with support for cuda|no NVIDIA driver|NCCL built in|module 'torch\._C' has no attribute '_cuda_"
    r"|libcuda(rt)?\b|CUDA driver|\bactive drivers\b|No CUDA GPUs are available|cudaGetDeviceCount",
    re.IGNORECASE,
)
"""How C code of torch and others says that it looked for a real device, promised in a rehearsal."""


def our_limit(said: str, where: str = "") -> str:
    """An error that a rehearsal ended with, as the rehearsal's own limit; empty if it is none."""
    if not OUR_LIMIT.search(said):
        return ""
    sentence = said.partition(". ")[0][:200]
    limit = (
        "this is a limit of the rehearsal, not a fault of the target: a call bypassed the simulated "
        "GPU and looked for a real one"
    )
    return f"{limit} ({sentence}{where})"


def needs_cuda(text: str) -> bool:
    """True of an error that says that there is no CUDA."""
    return NO_CUDA.search(text) is not None


def unfit(rehearsed: Recording) -> str:
    """Why a rehearsal cannot be judged; empty if it can."""
    manifest = rehearsed.manifest
    steps = sum(row.pass_name == "loud" for row in rehearsed.rows(StepRow))
    planned = {row["name"]: row["steps"] for row in manifest.get("planned", ())}
    limit = limit_of(rehearsed)
    if limit:
        return limit
    if manifest["outcome"] == "oom":
        return (
            f"it runs out of memory after {steps} steps: "
            f"{(manifest.get('error') or {}).get('message', '')}"
        )
    if steps < min(LEAST_REHEARSED, planned.get("loud", LEAST_REHEARSED)):
        said, where = raised(rehearsed.manifest)
        ours = our_limit(said, where)
        ended = f"it ended after {steps} step{'s' * (steps != 1)}"
        return f"{ended}; {ours}" if ours else f"{ended} ({said.removesuffix(': ')}{where})"
    return unused(rehearsed)


def unused(rehearsed: Recording) -> str:
    """What it means that no completed step ran anything on the device; empty if one did."""
    used = rehearsed.rows(DeviceUseRow)
    if not used or any(row.n for row in used):
        return ""
    return (
        "the target put nothing on the CUDA device that it was offered (it names no device, or only "
        "the CPU)"
    )


def limit_of(rehearsed: Recording) -> str:
    """What the program asked for that the shadow cannot do, and where; empty if nothing."""
    ended = next(iter(rehearsed.rows(LimitRow)), None)
    if ended is None:
        return ""
    where = f" at {rehearsed.site(ended.at)}" if ended.at is not None else ""
    return f"{ended.reason}{where}"
