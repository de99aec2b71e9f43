"""A run that failed early is rehearsed up to the step before."""

from pathlib import Path

import pytest

from auditor.recordings.folder import SCHEMA, Recording, RecordingWriter, write_manifest
from auditor.recordings.schema.sync import ReadRow
from auditor.runs import child_process
from auditor.runs.course import Course, Made, quiet
from auditor.runs.plan import Audit, Plan
from auditor.runs.progress import silent
from auditor.runs.rehearsal import rehearse

PLANNED = {"warmup": 5, "quiet": 50, "trace": 5, "loud": 50, "numbers": 3}


def recorded(folder, passes, outcome="raised", **more):
    """A recording with so many steps of each pass, and one read at line 7 in each loud step."""
    writer, start = RecordingWriter(folder), 0.0
    for name, steps in passes.items():
        for step in range(steps):
            writer.add_fields("steps", {"pass": name, "step": step, "us": 1e5, "start_us": start})
            start += 1e5
            if name == "loud":
                at = writer.site("/p/t.py", 7, "step", opcode="CALL", col=4)
                writer.add(ReadRow(pass_name=name, step=step, at=at, kind="item", n=1))
    writer.add_fields("loaders", {"loader": 0, "workers": 2})
    writer.close()
    manifest = {
        "schema": SCHEMA,
        "cwd": "/p",
        "device": "cpu",
        "outcome": outcome,
        "finished": True,
        "error": {"type": "ValueError"} if outcome != "completed" else None,
        "planned": [{"name": name, "steps": steps} for name, steps in PLANNED.items()],
        "passes": [{"name": name, "steps": steps} for name, steps in passes.items()],
        "sources": {},
        "warnings": [],
    }
    write_manifest(folder, {**manifest, **more})
    return Recording(folder)


@pytest.mark.parametrize(
    ("outcome", "after"), [("completed", "interrupted"), ("raised", "interrupted")]
)
def test_ctrl_c_in_the_rehearsal_ends_the_audit(tmp_path, monkeypatch, outcome, after):
    first = recorded(tmp_path, {"warmup": 5, "quiet": 12}, outcome)

    def stopped(plan, *_):
        return recorded(
            Path(plan.folder),
            {"warmup": 2, "loud": 2},
            "interrupted",
            error={"type": "KeyboardInterrupt"},
        )

    monkeypatch.setattr(child_process, "record", stopped)
    plan = Plan("t:step", (), 50, 5, "auto", str(tmp_path), ("reads",))
    rehearse(Course(Audit(plan, ("reads",)), None, silent, quiet, [Made(plan, first)]))
    manifest = Recording(tmp_path).manifest
    assert manifest["outcome"] == after
    assert manifest["error"]["type"] == (
        "ValueError" if outcome == "raised" else "KeyboardInterrupt"
    )
    assert manifest["warnings"] == ["the rehearsal of the GPU path was interrupted"]


@pytest.mark.parametrize(
    ("outcome", "steps", "asked"),
    [("completed", 2, None), ("raised", 16, 16), ("oom", 3, 0), ("interrupted", 16, 0)],
)
def test_the_steps_before_a_failure_are_rehearsed(tmp_path, monkeypatch, outcome, steps, asked):
    wanted: list[Plan] = []

    def rehearsed(plan, *_):
        wanted.append(plan)
        return recorded(Path(plan.folder), {"warmup": 1, "loud": 12}, "completed")

    monkeypatch.setattr(child_process, "record", rehearsed)
    plan = Plan("t:step", (), 50, 5, "auto", str(tmp_path), ("reads",))
    made = Made(plan, recorded(tmp_path, {"quiet": steps}, outcome))
    rehearse(Course(Audit(plan, ("reads",)), None, silent, quiet, [made]))
    assert [each.fit for each in wanted] == ([] if asked == 0 else [asked])
