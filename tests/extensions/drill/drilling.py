"""Drills a step in this process, through the same session and probe as the recording child."""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from auditor.capture.instruments.user_frames import Frames
from auditor.capture.probes.base import Context
from auditor.capture.probes.registry import select
from auditor.capture.session import Session
from auditor.extensions.drill.log import Log
from auditor.extensions.drill.report import DrillReport, judged
from auditor.extensions.drill.runs import PARTS, Order, Pair
from auditor.model.devices import CPU
from auditor.recordings.folder import SCHEMA, Recording, RecordingWriter, write_manifest
from auditor.runs.plan import Drill, Plan

Make = Callable[[], Callable[[], Any]]


def drilled(folder: Path, make: Make, fault: Drill, *, steps: int = 10) -> DrillReport:
    """Take the steps undisturbed, then with the fault, each in an empty folder of its own;
    judge.
    """
    order = Order("tests/extensions/drill/drilling.py:step", (), fault, steps, "cpu", folder)
    logs = [
        run(folder / name, make, each, steps)
        for name, each in (("undisturbed", Drill()), ("disturbed", fault))
    ]
    return judged(order, Pair(("undisturbed", "disturbed"), logs[0], logs[1], {}))


def run(folder: Path, make: Make, drill: Drill, steps: int) -> Log:
    """One run."""
    folder.mkdir(parents=True)
    plan = Plan(
        "test:step",
        (),
        steps,
        0,
        "cpu",
        str(folder / "recording"),
        PARTS,
        purpose=drill,
    )
    writer = RecordingWriter(Path(plan.folder))
    outcome, error = "completed", None
    with _inside(folder):
        context = Context(writer, Frames(writer), device=CPU, drill=drill)
        session = Session(plan, context, select(PARTS, context), lambda name, done, total: None)
        session.install()
        try:
            step = make()
            while not session.done:
                session.begin()
                step()
                session.end()
        except Exception as raised:
            outcome = "oom" if isinstance(raised, torch.OutOfMemoryError) else "raised"
            last = traceback.extract_tb(raised.__traceback__)[-1]
            error = {
                "type": type(raised).__name__,
                "message": str(raised),
                "file": last.filename,
                "line": last.lineno,
            }
            session.broken()
        finally:
            session.uninstall()
            writer.close()
    assert not session.failures
    where = {
        "schema": SCHEMA,
        "target": "test:step",
        "cwd": str(folder),
        "outcome": outcome,
        "error": error,
    }
    write_manifest(Path(plan.folder), where)
    return Log.read(Recording(Path(plan.folder)), 0)


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def texts(report: DrillReport, kind: str) -> str:
    """All sentences of a kind."""
    return "\n".join(each.text for each in report.observations if each.kind == kind)
