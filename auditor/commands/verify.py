"""``audit verify``: run the target again with each patch and without, in turn, and write what was measured into the report."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

import click

from auditor.commands import reading, results
from auditor.commands.fix import require_plain_values
from auditor.errors import AuditProblem
from auditor.model import Report
from auditor.recording import Recording
from auditor.verify import loaders
from auditor.verify.budget import Budget
from auditor.verify.candidates import candidates, is_selected, require_unchanged
from auditor.verify.experiment import Experiment
from auditor.verify.intervals import LEAST_PAIRS
from auditor.verify.trials import SLOW_SECONDS, Laboratory
from auditor.workplace import reached


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
    results.show(checked, results.write(checked, recording, folder, ()), quiet=quiet)
    return 0


def require_recorded_here(recording: Recording) -> None:
    """Raise :class:`AuditProblem` for a recording of another folder: a report that was sent must not say where to run what."""
    if not recording.cwd or Path(recording.cwd).resolve() != Path.cwd().resolve():
        raise AuditProblem(f"this was recorded in {recording.cwd}, and only there it can be run again", f"cd {recording.cwd}")


def verified(
    report: Report, recording: Recording, *, select: Collection[str] = (), unsafe: bool = False, budget: float, quiet: bool
) -> Report | None:
    """The report with what the re-runs measured; None where there is nothing to try: no patch, no arguments of a loader.

    Raises :class:`AuditProblem` when the target cannot be run again as it was recorded.
    """
    require_unchanged(recording)
    tried = candidates(report, recording, select, unsafe=unsafe)
    searched = dict(_searched(report, recording, select))
    if not tried and not searched:
        return None
    require_plain_values("the report", (edit for candidate in tried for edit in candidate.edits))
    say, values = _silent if quiet else _say, sum(map(loaders.values_to_try, searched.values()))
    runs = LEAST_PAIRS * (len(tried) + 2 * bool(tried) + values)
    with Laboratory(recording, budget / runs or SLOW_SECONDS) as laboratory:
        whole = Budget(budget)
        patches = Experiment(laboratory, recording, whole.part(len(tried) / (len(tried) + values)), say)
        found, verification = patches.run(tried)
        findings = [
            replace(finding, verified=found.get(number, finding.verified)) for number, finding in enumerate(report.findings)
        ]
        notes = list(verification.notes)
        for left, (number, present) in zip(range(len(searched), 0, -1), searched.items(), strict=True):
            findings[number], note = loaders.search(laboratory, findings[number], present, whole.part(1 / left), say)
            findings[number] = loaders.with_diff(findings[number], recording)
            notes.append(note)
        if laboratory.changed:
            notes.append(reached(laboratory.changed))
        seconds, steps = round(whole.spent, 1), laboratory.steps if searched else verification.steps
        verification = replace(verification, notes=tuple(notes), runs=laboratory.runs, steps=steps, seconds=seconds)
    return replace(report, findings=tuple(findings), verification=verification)


def _searched(report: Report, recording: Recording, select: Collection[str]) -> Iterator[tuple[int, loaders.Present]]:
    for number, finding in enumerate(report.findings):
        present = loaders.loader_of(finding, recording) if is_selected(finding, select) else None
        if present is not None:
            yield number, present


def _say(text: str) -> None:
    click.echo(f"verify: {text}", err=True)


def _silent(text: str) -> None:
    """Nothing is shown."""
