"""``audit verify``: run the target again with each patch and without, in turn, and write what was measured into the report."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import click

from auditor.commands import reading, results
from auditor.commands.fix import require_plain_values
from auditor.errors import AuditProblem
from auditor.model import Finding, Report
from auditor.recording import Recording
from auditor.verify import workers
from auditor.verify.candidates import candidates, require_unchanged
from auditor.verify.experiment import Experiment
from auditor.verify.trials import Laboratory


def run(*, report: str, select: tuple[str, ...], unsafe: bool, budget: float, quiet: bool, debug: bool) -> int:
    """Verify the patches of a report, rewrite its folder, print what came out; returns the exit code."""
    path = Path(report)
    judged = reading.report_of(path)
    recording = reading.recording_of(path)
    if recording is None:
        raise AuditProblem(f"{report}: the recording that says how to run the target again is not beside it")
    require_recorded_here(recording)
    folder = path if path.is_dir() else path.parent
    checked = verified(judged, recording, select=select, unsafe=unsafe, budget=budget, quiet=quiet)
    if checked is None:
        hint = "" if unsafe else " (--unsafe tries those too that may change what is trained)"
        click.echo(f"audit: nothing to verify: no such finding has a patch{hint}", err=True)
        return 0
    results.deliver(checked, recording, folder, (), quiet=quiet)
    return 0


def require_recorded_here(recording: Recording) -> None:
    """Raise :class:`AuditProblem` for a recording of another folder: a report that was sent must not say where to run what."""
    if not recording.cwd or Path(recording.cwd).resolve() != Path.cwd().resolve():
        raise AuditProblem(f"this was recorded in {recording.cwd}, and only there it can be run again", f"cd {recording.cwd}")


def verified(
    report: Report, recording: Recording, *, select: Collection[str] = (), unsafe: bool = False, budget: float, quiet: bool
) -> Report | None:
    """The report with what the re-runs measured; None where there is nothing to try: no patch, no number of workers.

    Raises :class:`AuditProblem` when the target cannot be run again as it was recorded.
    """
    require_unchanged(recording)
    tried = candidates(report, recording, select, unsafe=unsafe)
    loaders = [number for number, finding in enumerate(report.findings) if _searched(finding, recording, select)]
    if not tried and not loaders:
        return None
    require_plain_values("the report", (edit for candidate in tried for edit in candidate.edits))
    say, deadline = _silent if quiet else _say, time.monotonic() + budget
    with Laboratory(recording) as laboratory:
        found, verification = Experiment(laboratory, recording, budget, say).run(tried)
        findings = [
            replace(finding, verified=found.get(number, finding.verified)) for number, finding in enumerate(report.findings)
        ]
        notes = list(verification.notes)
        for number in loaders:
            present = workers.loader_of(findings[number], recording)
            searched = present and workers.search(laboratory, findings[number], present, deadline, say)
            if searched:
                findings[number] = workers.with_diff(searched.finding, recording)
                notes.append(searched.note)
        seconds = round(time.monotonic() - deadline + budget, 1)
        steps = laboratory.steps if len(notes) > len(verification.notes) else verification.steps
        verification = replace(verification, notes=tuple(notes), runs=laboratory.runs, steps=steps, seconds=seconds)
    return replace(report, findings=tuple(findings), verification=verification)


def _searched(finding: Finding, recording: Recording, select: Collection[str]) -> bool:
    chosen = not select or finding.code in select or finding.code.rstrip("0123456789") in select
    return chosen and workers.loader_of(finding, recording) is not None


def _say(text: str) -> None:
    click.echo(f"verify: {text}", err=True)


def _silent(text: str) -> None:
    """Nothing is shown."""
