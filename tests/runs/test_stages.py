"""The stages of an audit: which are made, in which order, and what they leave to one another."""

import time
from pathlib import Path

import pytest

from auditor.recordings.folder import SCHEMA, Recording, RecordingWriter, write_manifest
from auditor.recordings.schema.sync import ReadRow
from auditor.runs import child_process, stages
from auditor.runs.course import Course, quiet
from auditor.runs.plan import Audit, Plan
from auditor.runs.progress import silent


def recorded(plan, file, **more):
    """Twelve diagnosed steps, each with a read at line 1 of ``file``."""
    folder = Path(plan.folder)
    writer = RecordingWriter(folder)
    for step in range(12):
        fields = {"pass": "loud", "step": step, "us": 1e5, "start_us": step * 1e5}
        writer.add_fields("steps", fields)
        at = writer.site(str(file), 1, "step")
        writer.add(ReadRow(pass_name="loud", step=step, at=at, kind="item", n=1))
    writer.close()
    manifest = {
        "schema": SCHEMA,
        "cwd": str(file.parent),
        "device": plan.device if plan.rehearses else "cpu",
        "outcome": "completed",
        "finished": True,
        "planned": [{"name": "loud", "steps": 12}],
        "passes": [{"name": "loud", "steps": 12}],
        "sources": {},
        "warnings": [],
    }
    write_manifest(folder, {**manifest, **more})
    return Recording(folder)


@pytest.fixture
def ran(tmp_path, monkeypatch):
    """Plans of the runs that an audit makes; each reads a file of its own."""
    plans: list[Plan] = []
    monkeypatch.chdir(tmp_path)

    def record(plan, *_):
        plans.append(plan)
        file = tmp_path / f"{plan.device}.py"
        file.write_text("x.item()\n")
        return recorded(plan, file)

    monkeypatch.setattr(child_process, "record", record)
    return plans


def audited(folder, rehearsed):
    run = Plan("t:step", (), 50, 5, "auto", str(folder / "recording"), ("reads",))
    return stages.record(Audit(run, rehearsed), None, silent, quiet)


def test_a_rehearsal_follows_the_main_run_and_its_sources_are_kept(tmp_path, ran):
    recording = audited(tmp_path, ("reads",))
    assert [plan.device for plan in ran] == ["auto", "rehearse"]
    assert ran[1].folder.endswith("recording/rehearsal")
    kept = Recording(recording.folder).manifest["sources"]
    assert {Path(file).name for file in kept} == {"rehearse.py"}


def test_what_no_rule_asks_for_is_not_rehearsed(tmp_path, ran):
    audited(tmp_path, ())
    assert [plan.device for plan in ran] == ["auto"]


def test_nothing_follows_a_recording_that_could_not_be_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made: list[Plan] = []

    def record(plan, *_):
        made.append(plan)
        return recorded(plan, tmp_path / "t.py", unwritten="the disk is full")

    monkeypatch.setattr(child_process, "record", record)
    audited(tmp_path, ("reads",))
    assert len(made) == 1


def test_a_further_run_ends_by_the_deadline_of_the_audit():
    audit, now = Audit(Plan("t:step", (), 50, 5, "auto", "/r", ())), time.monotonic()
    until = now + 5.0
    assert Course(audit, until, silent, quiet).within(100.0) == until
    assert now + 1.0 <= Course(audit, until, silent, quiet).within(1.0) < until
    assert Course(audit, None, silent, quiet).within(100.0) >= now + 100.0
