"""``audit drill``: plant a fault in a training step and say whether the trainer survives it."""

from __future__ import annotations

import shutil
import time
from datetime import datetime
from pathlib import Path

from auditor.cli import console, progress_display
from auditor.cli.main import EXIT_FOUND
from auditor.errors import AuditProblem
from auditor.extensions.drill import report, runs
from auditor.runs import target as targets
from auditor.runs.plan import Device, Drill, Where

FOLLOWING = 10
"""Steps after the fault by default: enough for what it poisoned to show, and for the next
checkpoint of a small example.
"""

MARKS = {"good": "+", "bad": "!", "note": " "}


def drill(
    *,
    target: str,
    fault: Drill,
    where: Where | None,
    steps: int | None,
    out: str | None,
    device: Device,
    timeout: float | None,
    quiet: bool,
    args: tuple[str, ...],
) -> int:
    """Drill a target; returns the exit code."""
    fault = Drill(
        fault.what, fault.step, where or ("gradient" if fault.what in ("oom", "kill") else "batch")
    )
    steps = steps if steps is not None else fault.step + FOLLOWING + 1
    if steps <= fault.step:
        raise AuditProblem(
            f"--steps {steps} ends before step {fault.step} (steps are counted from 0)"
        )
    folder, ours = _folder(out, targets.parse(target).label)
    deadline = None if timeout is None else time.monotonic() + timeout
    order = runs.Order(target, args, fault, steps, device, folder.resolve(), deadline)
    say = (lambda text: None) if quiet else (lambda text: console.say(f"{text} ...", err=True))
    counted = progress_display.Steps()
    try:
        with progress_display.working("drill", lambda: str(counted), quiet=quiet):
            found = report.judged(order, runs.run(order, say, counted))
    except AuditProblem:
        if ours:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    (folder / "drill.json").write_text(found.to_json())
    _show(found, folder / "drill.json", quiet=quiet)
    return 0 if found.survived else EXIT_FOUND


def _folder(out: str | None, label: str) -> tuple[Path, bool]:
    """The folder for the results, and whether it is ours to remove when nothing came of it."""
    if out is None:
        return Path("audits") / f"drill-{label}-{datetime.now().strftime('%Y%m%d-%H%M%S-%f')}", True
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise AuditProblem(f"--out {out} is a file; it must be a folder")
    if (folder / "recordings").exists():
        raise AuditProblem(f"{out} already holds a drill", "choose another --out, or remove it")
    return folder, not folder.exists()


def _show(found: report.DrillReport, path: Path, *, quiet: bool) -> None:
    if not quiet:
        for each in found.observations:
            console.say(f"{MARKS[each.kind]} {each.text}")
        console.say(str(path))
    console.say(found.verdict)
