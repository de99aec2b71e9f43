"""What TensorBoard opens: the trace for its profiler tab, and scalars for its dashboards."""

from __future__ import annotations

import contextlib
import gzip
import importlib.util
import re
import zlib
from pathlib import Path

from auditor.cli import console, open_input
from auditor.errors import AuditProblem, fault
from auditor.evidence.table import Evidence
from auditor.extensions.tensorboard_tab import scalars
from auditor.extensions.tensorboard_tab.runs import EXPORTED, Run, runs_in
from auditor.judging import catalogue
from auditor.model import Report
from auditor.recordings.folder import Recording
from auditor.recordings.schema.sync import ReadRow

MADE = 16
"""Runs whose files are made at most when a folder of runs is opened: each takes about a second for
100 MB of trace.
"""


def write(report: Report, evidence: Evidence, folder: Path) -> None:
    """Write the files; TensorBoard's packages or a full disk never cost the command its end."""
    try:
        _export(report, evidence, folder)
    except Exception as error:
        console.say(f"audit: {folder} is incomplete: {fault(error)}", err=True)


def _export(report: Report, evidence: Evidence, folder: Path) -> None:
    run = re.sub(r"[^A-Za-z0-9_]+", "-", report.run.target).strip("-") or "run"
    trace = evidence.recording.trace
    if trace is not None and not list((folder / run).glob("*.pt.trace.json.gz")):
        # a run that was killed may leave half a trace
        with contextlib.suppress(EOFError, zlib.error, gzip.BadGzipFile):
            catalogue.reports("tensorboard").export(
                trace, folder, run, "host_0", trace.stat().st_mtime_ns
            )
    if importlib.util.find_spec("tensorboard") is None:
        return  # a run asked for none: audit view says what is missing
    scalars.write(
        report,
        [
            (row.step, row.n)
            for row in evidence.rows(ReadRow)
            if row.pass_name == "loud" and not row.lib
        ],
        folder / run,
        loud_from=evidence.recording.run_step("loud", 0),
    )


def complete(root: Path) -> None:
    """Write what is missing of the runs at and below ``root`` whose recording is beside their
    report.

    A report on a trace that stands alone has no recording: ``audit analyze --tensorboard`` copies
    that.
    """
    missing = [run for run in runs_in(root) if not _is_taken(run.folder / EXPORTED)]
    for run in missing[:MADE]:
        recording = _recording_inside(run)
        if recording is not None:
            # the pages say what is wrong with a report that cannot be read
            with contextlib.suppress(AuditProblem):
                write(open_input.report_of(run.folder), Evidence(recording), run.folder / EXPORTED)


def _is_taken(path: Path) -> bool:
    """True if anything has this name, even a dangling link: nothing is written through one."""
    return path.exists() or path.is_symlink()


def _recording_inside(run: Run) -> Recording | None:
    """The run's recording, if its trace lies inside the folder that is shown."""
    trace = run.trace()
    if trace is None:
        return None
    with contextlib.suppress(AuditProblem):
        found = open_input.recording_of(run.folder)
        if found is not None and found.trace is not None and found.trace.resolve() == trace:
            return found
    return None
