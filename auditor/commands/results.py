"""Judging a recording and writing what a run leaves: report.json, report.html, fixes.patch, tensorboard/, other formats."""

from __future__ import annotations

import contextlib
import gzip
import re
import sys
import zlib
from collections.abc import Iterable
from pathlib import Path

import click

from auditor import assemble, catalogue, engine
from auditor.config import Settings
from auditor.evidence.unpickle import no_collections
from auditor.model import Finding, Report
from auditor.patch import plan as plan_patches
from auditor.recording import Recording
from auditor.rule import Rule


def judge(recording: Recording, rules: tuple[type[Rule], ...], settings: Settings) -> Report:
    """The report on a recording."""
    with no_collections():  # evidence can be millions of rows, all of them alive until the report is made
        judgement = engine.judge(recording, rules, knobs=settings.knobs, per_file_ignores=settings.per_file_ignores)
    return assemble.report(recording, judgement, rules)


def write(report: Report, recording: Recording, out: Path, formats: Iterable[tuple[str, str]]) -> Path:
    """Write all files; returns the path of report.html."""
    out.mkdir(parents=True, exist_ok=True)
    for name, file in (("json", "report.json"), ("html", "report.html")):
        _write(out / file, catalogue.renderer(name).render(report))
    _write_patch(report, recording, out / "fixes.patch")
    _export_trace(report, recording, out / "tensorboard")
    for name, file in formats:
        rendered = catalogue.renderer(name).render(report)
        if file:
            _write(Path(file), rendered)
        elif name != "terminal":
            click.echo(rendered)
    return out / "report.html"


def _write(path: Path, content: str | bytes) -> None:
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "replace"))


def _write_patch(report: Report, recording: Recording, path: Path) -> None:
    path.unlink(missing_ok=True)
    safe = (f.remedy for f in report.findings if f.remedy is not None and f.remedy.safe and not is_broken(f))
    edits = [edit for remedy in safe for edit in remedy.edits]
    diff = plan_patches(edits, recording.source_bytes).diff if edits else b""
    if diff:
        path.write_bytes(diff)


def is_broken(finding: Finding) -> bool:
    """True if a re-run showed that the finding's patch changes the training result, or that the target fails with it."""
    return finding.verified is not None and finding.verified.status == "broken"


def _export_trace(report: Report, recording: Recording, folder: Path) -> None:
    trace = recording.folder / "trace.json.gz"
    if not trace.is_file():
        return
    run = re.sub(r"[^A-Za-z0-9_]+", "-", report.run.target).strip("-")
    time_ns = trace.stat().st_mtime_ns
    if not list((folder / run).glob("*.pt.trace.json.gz")):
        with contextlib.suppress(EOFError, zlib.error, gzip.BadGzipFile):  # a run that was killed may leave half a trace
            catalogue.reports("tensorboard").export(trace, folder, run, "host_0", time_ns)


def show(report: Report, path: Path, *, quiet: bool) -> None:
    """Print the table of findings, then the report's path; only the path with ``quiet``."""
    if not quiet:
        terminal = catalogue.reports("terminal").Terminal.for_stream(sys.stdout)
        click.echo(terminal.render(report), nl=False)
    click.echo(str(path))
    sys.stdout.flush()
