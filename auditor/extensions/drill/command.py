"""``audit drill``: plant a fault in a step. Does the trainer go on, stop, or train on with NaN?"""

import json
import shutil
import textwrap
import time
from pathlib import Path

import msgspec

from auditor import amounts
from auditor.cli import console, out_folder, progress_display
from auditor.cli.usage import EXIT_FOUND
from auditor.errors import AuditProblem, TargetFailed, TargetProblem
from auditor.recordings.folder import Recording
from auditor.recordings.schema.other_runs import DrillRow
from auditor.runs import child_process
from auditor.runs import target as targets
from auditor.runs.finalize import raised
from auditor.runs.plan import Device, Drill, Plan
from auditor.runs.project_copy import ProjectCopy

FOLLOWING = 10
"""Steps after the fault by default: enough for what it poisoned to show."""

RESTARTED_STEPS = 3
"""Steps of the restart after a kill: the first says where it went on."""

MESSAGE = 120
"""Characters of an error's message that are quoted."""


class Ran:
    """What a run did. Steps are numbered as the target counts: ``offset`` is the number of the first
    that is recorded (1 for scripts, whose first step ends before it is known).
    """

    def __init__(self, recording: Recording, offset: int) -> None:
        rows = [(each.step + offset, each) for each in recording.rows(DrillRow)]
        self.outcome = str(recording.manifest["outcome"])
        said, at = raised(recording.manifest)
        self.error = textwrap.shorten(said, MESSAGE, placeholder=" ...") + at
        self.started = next((row for _, row in rows if row.what == "start"), None)
        self.planted = next(((step, row) for step, row in rows if row.what == "planted"), None)
        self.ends = {step: row for step, row in rows if row.what == "end"}


def drill(
    *,
    target: str,
    fault: Drill,
    steps: int | None,
    out: str | None,
    device: Device,
    timeout: float | None,
    quiet: bool,
    args: tuple[str, ...],
) -> int:
    """Drill a target; returns the exit code."""
    address = targets.parse(target)
    offset = 1 if address.kind == "script" else 0
    steps = steps if steps is not None else fault.step + FOLLOWING + 1
    if steps <= fault.step:
        raise AuditProblem(f"--steps {steps} ends before step {fault.step} (the first is step 0)")
    if fault.step < offset:
        raise AuditProblem(
            "a script's step 0 ends before its steps are known",
            f"use --inject {fault.what}@1 or later",
        )
    folder = Path(out) if out is not None else out_folder.fresh(f"drill-{address.label}")
    if folder.is_file() or (folder / "recordings").exists():
        raise AuditProblem(f"{folder} is a file or holds a drill", "choose another --out")
    deadline = None if timeout is None else time.monotonic() + timeout
    counted = progress_display.StepProgress()

    def ran(name: str, where: ProjectCopy, planted: Drill, many: int) -> Ran:
        place = str(folder.resolve() / "recordings" / name)
        plan = Plan(target, args, many, 0, device, place, ("drill",), purpose=planted)
        made = child_process.record_once(where.plan(plan), deadline, counted, lambda text: None)
        if made.manifest["outcome"] == "interrupted":
            raise KeyboardInterrupt
        return Ran(made, offset)

    again = None
    try:
        with (
            progress_display.working("drill", lambda: str(counted), quiet=quiet),
            ProjectCopy(Path.cwd()) as where,
        ):
            due = msgspec.structs.replace(fault, step=fault.step - offset)
            run = ran("faulty", where, due, steps - offset)
            _require_planted(run, target, fault.step)
            if fault.what == "kill":
                again = ran("restarted", where, Drill(), RESTARTED_STEPS)
    except (AuditProblem, TargetFailed):
        if out is None:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    survived, seen = restarted(run, again) if again is not None else judged(run, fault.what)
    verdict = f"{'survived' if survived else 'FAILED'} {fault.what}@{fault.step}: {seen}"
    told = {"schema": "audit-drill/2", "target": target, "args": args, "steps": steps}
    told |= {"fault": fault.what, "step": fault.step, "survived": survived, "verdict": verdict}
    (folder / "drill.json").write_text(json.dumps(told, indent=2))
    if not quiet:
        console.say(str(folder / "drill.json"))
    console.say(verdict)
    return 0 if survived else EXIT_FOUND


def _require_planted(run: Ran, target: str, step: int) -> None:
    if run.planted is not None:
        return
    done = amounts.count(max(run.ends, default=-1) + 1, "step")
    if run.outcome == "timeout":
        raise TargetFailed(f"the target did not reach the fault in the time given ({done} done)")
    if run.outcome != "completed":
        raise TargetFailed(f"the target ended after {done}, before the fault, with {run.error}")
    if step not in run.ends:
        raise TargetProblem(f"{target} ended after {done}: there is no step {step} to drill")
    raise TargetProblem(
        f"from step {step} on no module returned a floating-point tensor to plant the fault in",
        "give a later step, or more --steps",
    )


def judged(run: Ran, what: str) -> tuple[bool, str]:
    """Whether the trainer survived a planted number or error, and what was seen."""
    assert run.planted is not None
    at, planted = run.planted
    last = max(run.ends, default=-1)
    left = run.ends[last] if last >= at else planted
    new = [name for name in left.bad if name not in planted.bad]
    ended = run.outcome != "completed"
    if new:
        names = ", ".join(new[:3]) + (", ..." if len(new) > 3 else "")
        tensors = amounts.count(max(len(new), left.n - planted.n), "tensor")
        stopped = f"; it stopped later, with {run.error}" if ended else ""
        word = "infinity" if what == "inf" else "NaN"
        return False, f"the {word} is in {tensors} after step {last} ({names}){stopped}"
    if ended:
        return what != "oom", f"it stopped in step {last + 1} with {run.error}"
    after = amounts.count(sum(step > at for step in run.ends), "step")
    return True, f"it went on for {after}, and weights, optimizer state and buffers are finite"


def restarted(killed: Ran, again: Ran) -> tuple[bool, str]:
    """The verdict on a run that was killed, and its restart."""
    assert killed.planted is not None
    lost = f"{amounts.count(killed.planted[0], 'completed step')} lost"
    if again.outcome != "completed" or again.started is None:
        return False, f"started again, it failed with {again.error}"
    if killed.started is not None and killed.started.weights == again.started.weights:
        return False, f"started again, it began from the initial weights: {lost}"
    return True, "started again, it went on from saved weights"
