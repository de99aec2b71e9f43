"""The folder ``tensorboard/`` of a run: the profiler tab's trace, and scalars by step."""

import contextlib
import gzip
import importlib.util
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from auditor.cli import console
from auditor.errors import fault
from auditor.evidence.table import Evidence
from auditor.judging import catalogue
from auditor.model import Report
from auditor.recordings.schema.sync import ReadRow

LAST = 2.0**62
"""A step that TensorBoard's files can hold: theirs have 64 bits."""

STEPS_SHOWN = 100_000
"""Steps of the diagnostic pass that can have a point: a stranger's row may name any step."""

Point = tuple[float, float]
Line = tuple[str, list[Point]]

_UNITS = {"us": ("ms", 1e3), "bytes": ("MiB", float(1 << 20))}
FILE = "events.out.tfevents.{seconds}.audit"


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
    write_scalars(
        report,
        [
            (row.step, row.n)
            for row in evidence.rows(ReadRow)
            if row.pass_name == "loud" and not row.lib
        ],
        folder / run,
        loud_from=evidence.recording.run_step("loud", 0),
    )


def write_scalars(
    report: Report, reads: Iterable[tuple[int, int]], folder: Path, *, loud_from: int = 0
) -> Path | None:
    """Write one event file into ``folder`` and return its path; None if there is nothing to
    plot.

    ``reads`` are the loud pass's step and the number of reads by the user's code in it,
    ``loud_from`` is the number in the run of the loud pass's first step. The file is the same each
    time and appears whole.
    """
    lines = [*_lines(report, reads, loud_from)]
    if not lines:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    recorded = _seconds(report.run.recorded_at)
    target = folder / FILE.format(seconds=f"{recorded:.0f}".zfill(10))
    temporary = target.with_name(".scalars.new")
    try:
        with temporary.open("wb") as file:
            _write(file, lines, recorded)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return target


def _lines(report: Report, reads: Iterable[tuple[int, int]], loud_from: int) -> Iterator[Line]:
    for series in report.series:
        unit, scale = _UNITS.get(series.unit, (series.unit, 1.0))
        scaled = ((x, y / scale) for x, y in zip(series.x, series.y, strict=False))
        points = [(x, y) for x, y in scaled if math.isfinite(y) and abs(x) <= LAST]
        if points:
            kind = "memory" if series.unit == "bytes" else "step time"
            name = catalogue.reports("text").one_line(series.name, 200)
            yield f"{kind}/{name.replace('/', ' per ')} ({unit})", points
    syncs = [(loud_from + step, reads) for step, reads in _syncs(reads)]
    if syncs:
        yield "host syncs/reads of tensors each step, diagnostic pass", syncs


def _syncs(reads: Iterable[tuple[int, int]]) -> Iterator[Point]:
    """Reads of tensors by the user's code: on a GPU each is a wait."""
    counted: Counter[int] = Counter()
    for step, n in reads:
        if 0 <= step < STEPS_SHOWN:
            counted[step] += n
    if counted:
        yield from ((float(step), float(counted[step])) for step in range(max(counted) + 1))


def _write(file: Any, lines: Iterable[Line], recorded: float) -> None:
    # Here, because only a run that has something to plot pays for it; these modules bring no
    # TensorFlow.
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    writer = RecordWriter(file)
    writer.write(Event(wall_time=recorded, file_version="brain.Event:2").SerializeToString())
    for tag, points in lines:
        for step, value in points:
            summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
            writer.write(
                Event(wall_time=recorded, step=round(step), summary=summary).SerializeToString()
            )
    writer.flush()


def _seconds(recorded_at: str) -> float:
    with contextlib.suppress(ValueError, OverflowError):
        return max(0.0, datetime.fromisoformat(recorded_at).timestamp())
    return 0.0
