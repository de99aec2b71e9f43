"""How long one run is, whatever a step takes; what cannot be run again is refused before."""

import json
import time
from pathlib import Path
from typing import ClassVar

import pytest

from auditor.errors import AuditProblem
from auditor.evidence.table import Evidence
from auditor.extensions.verify import trials
from auditor.extensions.verify.arms import require_unchanged
from auditor.extensions.verify.trials import LEAST_TIMEOUT_S, PATIENCE, Laboratory, steps_for
from auditor.recordings.folder import SCHEMA, Recording, write_manifest
from auditor.recordings.row import Row
from auditor.recordings.schema.run import StepRow
from auditor.recordings.schema.sync import CopyRow, ReadRow
from auditor.recordings.writer import store_sources
from auditor.runs import child_process


@pytest.mark.parametrize(
    ("seconds", "steps", "warmup"),
    [
        (0.001, 100, 10_000),
        (0.02, 50, 500),
        (0.1, 10, 100),
        (0.5, 10, 20),
        (2.0, 5, 5),
        (60.0, 3, 1),
    ],
)
def test_a_run_is_long_enough_to_measure_and_no_longer(seconds, steps, warmup):
    assert steps_for([seconds * 1e6] * 3) == (steps, warmup)


@pytest.mark.parametrize(
    ("seconds", "limit", "steps", "warmup"),
    [(0.5, 1.0, 3, 2), (0.5, 3.0, 6, 6), (0.02, 0.4, 20, 20), (0.02, 60.0, 50, 3000)],
)
def test_a_small_budget_makes_runs_shorter(seconds, limit, steps, warmup):
    assert steps_for([seconds * 1e6], limit) == (steps, warmup)


def test_without_times_there_is_a_usual_number():
    assert steps_for([]) == (10, 10)


@pytest.fixture
def project(tmp_path):
    (tmp_path / "train.py").write_text("step = print")
    return tmp_path


def _recording(project, **facts):
    folder = project / "recording"
    sources = store_sources(folder, str(project), iter([str(project / "train.py")]))
    manifest = {
        "schema": SCHEMA,
        "cwd": str(project),
        "device": "cpu",
        "outcome": "completed",
        "sources": sources,
    }
    write_manifest(folder, {**manifest, "passes": [{"name": "quiet", "steps": 9}], **facts})
    return Recording(folder)


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"device": "trace"}, "only what audit run recorded"),
        ({"passes": []}, "only what audit run recorded"),
        ({"outcome": "oom"}, "did not complete"),
        ({"world_size": 4}, "several processes"),
        ({"cwd": "/not/there"}, "is not there any more"),
    ],
)
def test_what_cannot_be_run_again_is_refused(project, facts, why):
    with pytest.raises(AuditProblem, match=why):
        require_unchanged(_recording(project, **facts))


def test_a_file_that_changed_or_went_is_named(project):
    recording = _recording(project)
    (project / "train.py").write_text("step = 1")
    with pytest.raises(AuditProblem, match=r"train\.py has changed"):
        require_unchanged(recording)
    (project / "train.py").unlink()
    with pytest.raises(AuditProblem, match=r"train\.py has changed"):
        require_unchanged(recording)


class Rehearsed(Recording):
    """Two loud steps of a rehearsal: reads, and copies of which some do not hold the host."""

    manifest: ClassVar[dict[str, str]] = {"device": "rehearse"}
    parts: ClassVar[dict[type[Row], list[Row]]] = {
        ReadRow: [
            ReadRow(pass_name=name, step=0, at=0, kind="item", n=n, lib=lib)
            for name, n, lib in (
                ("loud", 2, ""),
                ("loud", 1, ""),
                ("loud", 9, "loader"),
                ("quiet", 9, ""),
            )
        ],
        CopyRow: [
            CopyRow(pass_name="loud", step=0, at=0, n=n, bytes=8, blocking=blocking, lib=lib)
            for n, blocking, lib in ((3, True, ""), (4, False, ""), (5, True, "loader"))
        ],
    }

    def __init__(self):
        """Of nothing on disk."""

    def rows(self, kind):
        """Of one type."""
        return self.parts[kind]


def test_a_copy_that_holds_the_host_is_a_host_sync():
    steps = [StepRow(pass_name=name, step=0, us=1.0) for name in ("warmup", "loud", "loud")]
    assert trials._syncs(Rehearsed(), steps) == 3.0


HANGING = """
import os, subprocess, time
helper = subprocess.Popen(["sleep", "600"])
with open({said!r} + ".new", "w") as said:
    said.write(str(helper.pid))
os.rename({said!r} + ".new", {said!r})
def step():
    pass
time.sleep(600)
"""


def test_a_run_that_hangs_is_ended_with_all_that_it_started(project, monkeypatch):
    said = project.parent / "hanging"
    (project / "train.py").write_text(HANGING.format(said=str(said)))
    recording = _recording(project, target="train.py:step", argv=[])
    wait, given = child_process.Child.wait, list[float]()

    def until_it_hangs(child, deadline):
        assert deadline is not None
        given.append(deadline - time.monotonic())
        while not said.exists():
            assert child.process.poll() is None, child.output
            time.sleep(0.05)
        return wait(child, time.monotonic())

    monkeypatch.setattr(child_process.Child, "wait", until_it_hangs)
    with Laboratory(Evidence(recording)) as laboratory:
        measured = laboratory.run()
    assert len(given) == 1 and LEAST_TIMEOUT_S / 2 < given[0] <= LEAST_TIMEOUT_S
    assert measured.failed == f"it was still running after {LEAST_TIMEOUT_S:.0f} s and was ended"
    assert not _runs(int(said.read_text()))


def _runs(process):
    """True if it is there, and not only waits for its parent to notice that it has ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_run_may_take_as_long_as_the_audit_several_times_over(project):
    recording = _recording(project, target="train.py:step", argv=[])
    rows = [
        {"pass": name, "step": 0, "us": 1e6, "queued_us": 0.0, "start_us": start}
        for name, start in (("quiet", 5e6), ("gradients", 89e6))
    ]
    (recording.folder / "steps.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with Laboratory(Evidence(Recording(recording.folder))) as laboratory:
        assert laboratory.patience == PATIENCE * 90
