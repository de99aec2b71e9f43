"""The run on the null device beside a rehearsal: torch's own CUDA code on a machine without a GPU
(docs/null-device.md).

It costs only itself: where it cannot be made, hangs or dies, a sentence says so, and the rehearsal
on the shadow device stands alone.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import replace

from auditor.errors import AuditProblem
from auditor.extensions import extension
from auditor.recordings.folder import Recording, write_manifest
from auditor.recordings.schema import StepRow
from auditor.runs import child_process
from auditor.runs.child_process import add_warning
from auditor.runs.plan import LEAST_REHEARSED, Plan
from auditor.runs.progress import Progress, stage
from auditor.runs.rerun import keep_sources

PATIENCE_S, PATIENCE = 120.0, 10.0
"""It may take this long, and so many times as long as the rehearsal took."""

DEFAULT_GPU = "H100"

COMPARED, WORK = ("course",), ("device_work",)
"""Parts in which a rehearsal and the run on the null device are compared, and what only the latter
has."""

COULD_NOT = "the run on the null device (torch's own CUDA code without a GPU)"
"""How each sentence begins that says what became of it."""


def lacking() -> AuditProblem | None:
    """Why there is no null device for this Python's torch, as one sentence with the way out; None
    where it is there, or can be built.
    """
    problem: AuditProblem | None = extension("nulldevice").lacking()
    return problem


def prepared(plan: Plan) -> Plan:
    """The plan with the model of GPU that shadow and null device play alike, and with what lets
    the two be compared, where there will be both.
    """
    if not plan.rehearsed or plan.device != "auto" or plan.world_size > 1 or lacking() is not None:
        return replace(plan, native=())
    return replace(
        plan,
        gpu=plan.gpu or DEFAULT_GPU,
        rehearsed=(*plan.rehearsed, *COMPARED),
        native=(*plan.native, *COMPARED, *WORK),
    )


def beside(
    wanted: Plan,
    recording: Recording,
    rehearsed: Recording,
    deadline: float | None,
    progress: Progress,
) -> Recording | None:
    """Run what was ``rehearsed`` as ``wanted`` on the null device too, inside ``recording``; never
    raises for what becomes of it. Returns the run if it was interrupted.
    """
    if rehearsed.manifest["outcome"] == "interrupted":
        return None
    if not wanted.native:
        if (problem := lacking()) is not None:
            _tell(recording, {"lacking": problem.message, "remedy": problem.hint})
        return None
    stage(progress, "null device")
    try:
        made = _run(wanted, recording, rehearsed, deadline, progress)
    except AuditProblem as failed:
        shutil.rmtree(_plan(wanted, rehearsed, {}).folder, ignore_errors=True)
        _tell(recording, {"failed": failed.message})
        add_warning(recording, f"{COULD_NOT} could not be made: {failed.message}")
        return None
    return made if made.manifest["outcome"] == "interrupted" else None


def _plan(wanted: Plan, rehearsed: Recording, variables: Mapping[str, str]) -> Plan:
    return wanted.on_null(str(rehearsed.folder), variables)


def _run(
    wanted: Plan,
    recording: Recording,
    rehearsed: Recording,
    deadline: float | None,
    progress: Progress,
) -> Recording:
    variables = extension("nulldevice").environment(
        wanted.gpu or DEFAULT_GPU
    )  # the first time it is compiled
    plan = _plan(wanted, rehearsed, variables)
    until = time.monotonic() + max(PATIENCE_S, PATIENCE * _seconds(rehearsed))
    until = until if deadline is None else min(until, deadline)
    made = child_process.record_apart(plan, until, progress, _silent)
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


def _silent(text: str) -> None:
    """What the target prints was shown once."""


def _seconds(recording: Recording) -> float:
    """How long a run took from its first step on."""
    return max((row.start_us + row.us for row in recording.rows(StepRow)), default=0.0) / 1e6


def _tell(recording: Recording, said: Mapping[str, str]) -> None:
    recording.manifest["null_device"] = dict(said)
    write_manifest(recording.folder, recording.manifest)
