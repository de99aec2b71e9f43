"""``audit compare``: two audits side by side, and whether the second is proven to be slower."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import click

from auditor import amounts, catalogue, config
from auditor.cli import EXIT_FOUND
from auditor.commands import reading, results
from auditor.errors import AuditProblem
from auditor.model import Finding, Report
from auditor.recording import MANIFEST, Recording
from auditor.verify.comparison import Comparison, Side, compare, unlike
from auditor.verify.intervals import Run
from auditor.verify.times import quiet_run

TOLD = 0.02
"""Share of the step time from which it is said that waiting for the processor was taken off."""


def run(*, before: str, after: str, max_regression: float | None, as_json: bool, debug: bool) -> int:
    """Print what changed; returns 1 where a regression by more than the share ``max_regression`` is proven."""
    compared = compare(_side(Path(before)), _side(Path(after)))
    for sentence in unlike(compared.before, compared.after):
        click.echo(f"audit: {sentence}", err=True)
    if max_regression is not None and compared.step is None:
        without = after if compared.before.runs else before
        raise AuditProblem(
            f"--max-regression needs the times of single steps, and {without} holds none",
            "keep the folder recording/ beside report.json: a report has only their median",
        )
    click.echo(json.dumps(_facts(compared), indent=2) if as_json else "\n".join(_lines(compared)))
    sys.stdout.flush()
    return EXIT_FOUND if max_regression is not None and _judged(compared, max_regression) else 0


def _judged(compared: Comparison, bound: float) -> bool:
    assert compared.step is not None
    regressed = compared.regressed(bound)
    if regressed:
        click.echo(f"audit: a step takes at least {compared.step.low - 1:.1%} longer; {bound:.1%} is allowed", err=True)
    elif compared.step.ratio > 1.0 + bound:
        click.echo(f"audit: a step may take more than {bound:.1%} longer, but these runs do not prove it", err=True)
    return regressed


# -- what is read ------------------------------------------------------------------------------------------------------


def _side(path: Path) -> Side:
    """What lies at a path: one audit, or a folder of audits of the same thing (then their spread is known)."""
    if not path.exists():
        raise AuditProblem(f"{path} does not exist")
    found = [path] if _is_audit(path) else sorted(inner for inner in path.iterdir() if _is_audit(inner)) if path.is_dir() else []
    if not found:
        raise AuditProblem(f"{path} holds no report and no recording", "give report.json, the folder of a run, or its recording")
    sides = [_audit(each) for each in found]
    last = max((report for report, _ in sides), key=lambda report: report.run.recorded_at)
    runs = tuple(run for _, run in sides if run.us)
    return Side(last, runs if len(runs) == len(sides) else ())


def _is_audit(path: Path) -> bool:
    if path.is_file():
        return path.suffix == ".json"
    return any((path / name).is_file() for name in (reading.REPORT, MANIFEST, f"{reading.RECORDING}/{MANIFEST}"))


def _audit(path: Path) -> tuple[Report, Run]:
    recording = reading.recording_of(path)
    if path.is_file() or (path / reading.REPORT).is_file():
        report = reading.report_of(path)
        mine = recording is not None and recording.manifest.get("recorded_at") == report.run.recorded_at
        return report, quiet_run(recording) if recording is not None and mine else Run(())
    assert recording is not None
    return _judge(recording), quiet_run(recording)


def _judge(recording: Recording) -> Report:
    settings = config.load(Path.cwd(), catalogue.rules())
    return results.judge(recording, catalogue.choose(settings.select, settings.ignore), settings)


# -- what is shown -----------------------------------------------------------------------------------------------------


def _facts(compared: Comparison) -> dict[str, Any]:
    """Everything as JSON, under the names of report.json."""
    return {
        "schema": "audit-compare/1",
        "step_us": {"before": compared.before.step_us, "after": compared.after.step_us},
        "ratio": asdict(compared.step) if compared.step is not None else None,
        "peak_bytes": {name: asdict(side.report.run.peak_bytes) for name, side in _sides(compared)},
        "syncs_per_step": {name: side.syncs for name, side in _sides(compared)},
        "findings": {name: [_named(finding) for finding in found] for name, found in _changes(compared)},
    }


def _named(finding: Finding) -> dict[str, Any]:
    return {"key": finding.key, "code": finding.code, "site": str(finding.site or ""), "message": finding.message}


def _sides(compared: Comparison) -> tuple[tuple[str, Side], ...]:
    return ("before", compared.before), ("after", compared.after)


def _changes(compared: Comparison) -> tuple[tuple[str, tuple[Finding, ...]], ...]:
    return ("new", compared.new), ("gone", compared.gone), ("kept", compared.kept)


def _lines(compared: Comparison) -> Iterator[str]:
    text = catalogue.reports("text")
    before, after = compared.before, compared.after
    one, other = before.report.run.peak_bytes, after.report.run.peak_bytes
    yield f"{'':14}{'before':>12}{'after':>12}"
    yield f"{'step time':14}{_cell(before.step_us, amounts.duration)}{_cell(after.step_us, amounts.duration)}  {_ratio(compared)}"
    if any(run.busy >= TOLD for _, side in _sides(compared) for run in side.runs):
        shares = " and ".join(_waiting(side) for _, side in _sides(compared))
        yield f"{'':14}without the time that steps waited for the processor, which was {shares} of it"
    for name, a, b in (("device memory", one.device, other.device), ("host memory", one.host, other.host)):
        if a is not None or b is not None:
            change = f"  {b / a - 1:+.1%}" if a and b is not None else ""
            yield f"{name:14}{_cell(a, amounts.size)}{_cell(b, amounts.size)}{change}"
    if before.syncs is not None or after.syncs is not None:
        yield f"{'host syncs':14}{_cell(before.syncs, amounts.digits)}{_cell(after.syncs, amounts.digits)}  per step, as reported"
    yield ""
    yield "findings: " + ", ".join(f"{len(found)} {name}" for name, found in _changes(compared))
    yield from _named_lines(_changes(compared)[:2], text)


def _named_lines(changes: Iterable[tuple[str, tuple[Finding, ...]]], text: Any) -> Iterator[str]:
    for name, found in changes:
        for finding in found:
            where = f" {text.path(str(finding.site))}" if finding.site else ""
            yield f"  {name:5}{text.path(finding.code)}{where}: {text.one_line(finding.message, 1000)}"


def _waiting(side: Side) -> str:
    return amounts.percent(median(run.busy for run in side.runs)) if side.runs else "an unknown part"


def _cell(value: float | None, shown: Any) -> str:
    return f"{'-' if value is None else shown(value):>12}"


def _ratio(compared: Comparison) -> str:
    step = compared.step
    if step is None:
        return "no interval: the times of single steps are not there"
    sides = (f"{len(side.runs)} run{'s' * (len(side.runs) != 1)}" for _, side in _sides(compared))
    known = "a difference" if step.excludes_one else "no difference proven"
    return f"ratio {step.ratio:.3f} [{step.low:.3f} - {step.high:.3f}], {known} ({' and '.join(sides)})"
