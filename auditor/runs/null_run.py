"""The run on the null device beside a rehearsal: torch's own CUDA code on a machine without a GPU
(docs/null-device.md).

It costs only itself: where it cannot be made, hangs or dies, a sentence says so, and the rehearsal
on the shadow device stands alone.
"""

import shutil
from collections.abc import Mapping
from dataclasses import replace

from auditor import null_device
from auditor.errors import AuditProblem
from auditor.recordings.folder import Recording, write_manifest
from auditor.recordings.schema.run import StepRow
from auditor.runs import child_process
from auditor.runs.course import Course, Made, quiet, seconds_to
from auditor.runs.finalize import add_warning, keep_sources
from auditor.runs.plan import LEAST_REHEARSED, Audit, Plan
from auditor.runs.progress import stage

PATIENCE_S, PATIENCE = 120.0, 10.0
"""Time limit: these seconds, or this multiple of the rehearsal's time if that is longer."""

DEFAULT_GPU = "H100"

COMPARED, WORK = ("course",), ("device_work",)
"""Parts in which a rehearsal and the null device's run are compared, and the latter's own."""

COULD_NOT = "the run on the null device (torch's own CUDA code without a GPU)"
"""How each sentence begins that says what became of it."""


def prepared(audit: Audit) -> Audit:
    """The audit with a GPU that shadow and null device play alike, to compare them."""
    run = audit.run
    if (
        not audit.rehearsed
        or run.device != "auto"
        or run.world_size > 1
        or null_device.lacking() is not None
    ):
        return replace(audit, native=())
    return Audit(
        replace(run, gpu=run.gpu or DEFAULT_GPU),
        (*audit.rehearsed, *COMPARED),
        (*audit.native, *COMPARED, *WORK),
    )


def beside(course: Course) -> None:
    """Run what was rehearsed on the null device too, inside the main recording; never raises."""
    recording, rehearsal = course.main.recording, course.rehearsal
    if rehearsal is None or rehearsal.outcome == "interrupted":
        return
    if not course.audit.native:
        if (problem := null_device.lacking()) is not None:
            _tell(recording, {"lacking": problem.message, "remedy": problem.hint})
        return
    stage(course.progress, "null device")
    try:
        made = _run(course, rehearsal)
    except AuditProblem as failed:
        shutil.rmtree(_plan(course, rehearsal, {}).folder, ignore_errors=True)
        _tell(recording, {"failed": failed.message})
        add_warning(recording, f"{COULD_NOT} could not be made: {failed.message}")
        return
    if made.manifest["outcome"] == "interrupted":
        course.interrupted("run on the null device", made)


def _plan(course: Course, rehearsal: Made, variables: Mapping[str, str]) -> Plan:
    native, recording = course.audit.native, rehearsal.recording
    steps = sum(row.pass_name == "loud" for row in recording.rows(StepRow))
    return rehearsal.plan.on_null(native, str(recording.folder), variables, steps)


def _run(course: Course, rehearsal: Made) -> Recording:
    recording, rehearsed = course.main.recording, rehearsal.recording
    model = rehearsal.plan.gpu or DEFAULT_GPU
    variables = null_device.environment(model)  # compiled the first time
    plan = _plan(course, rehearsal, variables)
    until = course.within(max(PATIENCE_S, PATIENCE * seconds_to(rehearsed)))
    made = child_process.record_apart(plan, until, course.progress, quiet)
    steps = len(made.rows(StepRow))
    keep_sources(recording, made)
    ended = made.manifest["outcome"]
    if ended == "completed" and steps >= min(LEAST_REHEARSED, len(rehearsed.rows(StepRow))):
        _tell(recording, {"steps": str(steps)})
        return made
    shutil.rmtree(made.folder, ignore_errors=True)
    error = made.manifest.get("error") or {}
    said = f"{error.get('type', '')}: {error.get('message', '')}".strip(": ").partition("\n")[0]
    why = f"{ended} after {steps} steps" + (f" ({said[:300]})" if said else "")
    _tell(recording, {"failed": why})
    if ended != "interrupted":
        add_warning(recording, f"{COULD_NOT} ended early and is not judged: {why}")
    return made


def _tell(recording: Recording, said: Mapping[str, str]) -> None:
    recording.manifest["null_device"] = dict(said)
    write_manifest(recording.folder, recording.manifest)
