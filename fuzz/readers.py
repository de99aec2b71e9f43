"""What `audit` does with one file of a stranger, in this process: read it, judge it, write the report."""

from __future__ import annotations

from pathlib import Path

from auditor import catalogue, config
from auditor.checkpoints import settings as checkpoint_settings
from auditor.checkpoints.contents import NotACheckpoint
from auditor.checkpoints.recording import CheckpointRecording
from auditor.checkpoints.scan import scan
from auditor.commands import analyze, reading, results
from auditor.commands import checkpoint as checkpoints
from auditor.errors import AuditProblem
from auditor.model import Report

ALLOWED = (AuditProblem, NotACheckpoint)
"""How a reader refuses a file: one sentence, exit code 2."""

FORMATS = ("json", "sarif", "markdown", "junit")


class Failed(Exception):
    """A reader did what none should; the message says what."""


def warm() -> None:
    """Import everything that reading needs, so that each fork has it."""
    catalogue.rules()
    for name in FORMATS:
        catalogue.renderer(name)


def read_one(kind: str, path: Path) -> None:
    """Raises :class:`Failed`, or whatever a reader lets out."""
    try:
        READERS[kind](path)
    except ALLOWED as problem:
        if "\n" in str(problem) or not str(problem):
            raise Failed(f"a refusal that is not one line: {str(problem)[:200]!r}") from None


def _analyze(path: Path, *, own: bool = True) -> None:
    _judged(results.judge(analyze._open(path, None), catalogue.choose((), ()), config.Settings()), own=own)


def _recording(path: Path) -> None:
    """A rule that fails on a row that no probe writes is a verdict *failed*, and no failure of the reader."""
    _analyze(path, own=False)


def _checkpoint(path: Path) -> None:
    recording = CheckpointRecording((scan(path),))
    _judged(results.judge(recording, checkpoints.rules_for_checkpoints(catalogue.choose((), ())), config.Settings()))
    checkpoints._show(recording, results.judge(recording, (), config.Settings()))


def _report(path: Path) -> None:
    _judged(reading.report_of(path), own=False)


def _config(path: Path) -> None:
    checkpoint_settings.read(path)


def _judged(report: Report, *, own: bool = True) -> None:
    failed = [f"{verdict.code}: {verdict.reason}" for verdict in report.verdicts if verdict.status == "failed"]
    if failed and own:
        raise Failed(f"a rule failed: {failed[0][:500]}")
    for name in FORMATS:
        catalogue.renderer(name).render(report)


READERS = {
    "trace": _analyze,
    "snapshot": _analyze,
    "recording": _recording,
    "checkpoint": _checkpoint,
    "report": _report,
    "config": _config,
}
