"""A rehearsal that is made while the main run goes on."""

import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from auditor import machine
from auditor.errors import TargetProblem
from auditor.recordings.folder import SCHEMA, Recording, RecordingWriter, write_manifest
from auditor.runs import child_process, stages
from auditor.runs.course import quiet
from auditor.runs.plan import OUTSIDE, Audit, Plan
from auditor.runs.progress import Late
from auditor.runs.project_copy import NoCopy

PASSES = {"warmup": 1, "quiet": 8, "loud": 8, "numbers": 3}


class Process:
    """One that runs until it is killed."""

    def __init__(self):
        self.killed = False

    def kill(self):
        self.killed = True

    def wait(self): ...


class Shown:
    """A display that remembers what it was told."""

    def __init__(self):
        self.told: list[object] = []

    def stage(self, name):
        self.told.append(name)

    def outline(self, passes):
        self.told.append(passes)

    def __call__(self, name, done, steps):
        self.told.append((name, done, steps))


def recorded(plan, outcome="completed", nonfinite=False, **more):
    folder = Path(plan.folder)
    writer, start = RecordingWriter(folder), 0.0
    passes = {"loud": 12} if plan.rehearses else PASSES
    for name, steps in passes.items():
        for step in range(steps):
            fields = {"pass": name, "step": step, "us": 1e5, "start_us": start, "rss": 1 << 20}
            writer.add_fields("steps", fields)
            start += 1e5
    if nonfinite:
        row = {"pass": "loud", "step": 3, "global_step": 12, "last_good": 11}
        writer.add_fields("nonfinite", {**row, "what": "gradient", "tensors": [], "n": 1})
    writer.close()
    manifest = {
        "schema": SCHEMA,
        "cwd": str(folder),
        "device": plan.device if plan.rehearses else "cpu",
        "outcome": outcome,
        "finished": True,
        "planned": [{"name": name, "steps": steps} for name, steps in passes.items()],
        "passes": [{"name": name, "steps": steps} for name, steps in passes.items()],
        "sources": {},
        "warnings": [],
    }
    write_manifest(folder, {**manifest, **more})
    return Recording(folder)


class Audited:
    """An audit whose processes are played: ``main`` is told a progress and returns a recording,
    ``rehearsals`` have one outcome after the other (or raise it)."""

    def __init__(self, folder, patch, main, rehearsals):
        self.folder, self.main, self.outcomes = folder / "recording", main, list(rehearsals)
        self.children: list[SimpleNamespace] = []
        self.made: list[tuple[str, bool]] = []
        self.display = Shown()
        patch.chdir(folder)
        patch.setattr(machine, "processors", lambda: 2)
        patch.setattr(machine, "free_memory", lambda: 1 << 40)
        patch.setattr(child_process, "Child", self.child)
        patch.setattr(child_process, "record", self.record)
        patch.setattr(child_process, "record_apart", self.replay)

    def child(self, plan, progress, echo):
        started = SimpleNamespace(plan=plan, process=Process(), leave=lambda: None)
        started.thread = threading.current_thread()
        self.children.append(started)
        progress("loud", 5, 12)
        return started

    def record(self, plan, deadline, progress, echo, begun=None):
        if not plan.rehearses:
            return self.main(plan, progress)
        self.made.append((Path(plan.folder).name, begun is not None))
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        if outcome == OUTSIDE:
            Path(plan.copied.kept, OUTSIDE).write_text("/data/best.pt")
            outcome = "killed"
        return recorded(plan, outcome)

    def begins(self, progress):
        """The main run comes to its first pass without times."""
        progress("numbers", 0, 3)
        until = time.monotonic() + 30.0
        while not self.children and time.monotonic() < until:
            time.sleep(0.01)

    def replay(self, *_):
        raise NoCopy("the disk is full")

    def run(self):
        plan = Plan("t:step", (), 50, 5, "auto", str(self.folder), ("reads",))
        audit = Audit(plan, ("nonfinite", "reads"))
        return stages.record(audit, None, self.display, quiet)


def to_the_end(plan, progress, **manifest):
    """A main run that takes all its passes."""
    recorded(plan, **manifest)
    for name, steps in PASSES.items():
        progress(name, 0, steps)
    return Recording(Path(plan.folder))


@pytest.fixture
def audited(tmp_path, monkeypatch):
    return lambda main, *rehearsals: Audited(tmp_path, monkeypatch, main, rehearsals)


def test_it_begins_with_the_first_pass_without_times_and_counts(audited):
    begun: list[int] = []

    def main(plan, progress):
        recorded(plan)
        for name, steps in PASSES.items():
            begun.append(len(audit.children))
            progress(name, 0, steps)
        return Recording(Path(plan.folder))

    audit = audited(main, "completed")
    recording = audit.run()
    assert begun == [0, 0, 0, 0] and len(audit.children) == 1
    assert audit.made == [("beside", True)]
    assert audit.children[0].plan.copied.beside
    assert [path.name for path in recording.folder.iterdir() if path.is_dir()] == ["rehearsal"]
    assert audit.display.told[-2:] == ["rehearsal", ("loud", 5, 12)]
    assert not audit.children[0].process.killed
    audit.children[0].thread.join(5.0)  # it stays as long as the process
    assert not audit.children[0].thread.is_alive()


@pytest.mark.parametrize(
    "failed", ["raised", "killed", OUTSIDE, TargetProblem("it asked for a port that is in use")]
)
def test_one_that_failed_is_made_again_alone(audited, failed):
    audit = audited(to_the_end, failed, "completed")
    recording = audit.run()
    assert audit.made == [("beside", True), ("rehearsal", False)]
    assert recording.inside("rehearsal") is not None and recording.inside("beside") is None
    assert recording.manifest["warnings"] == []


def test_one_that_ran_out_of_its_time_is_not_made_again(audited):
    audit = audited(to_the_end, "timeout")
    audit.run()
    assert audit.made == [("beside", True)]


@pytest.mark.parametrize("why", ["memory", "processors", "accelerator"])
def test_it_waits_for_its_turn_without_room(audited, monkeypatch, why):
    def main(plan, progress):
        there = to_the_end(plan, progress, device="cuda" if why == "accelerator" else "cpu")
        return Recording(there.folder, {**there.manifest, "device": "cpu"})

    audit = audited(main, "completed")
    if why == "memory":
        monkeypatch.setattr(machine, "free_memory", lambda: (2 << 20) - 1)
    if why == "processors":
        monkeypatch.setattr(machine, "processors", lambda: 1)
    audit.run()
    assert audit.children == [] and audit.made == [("rehearsal", False)]


@pytest.mark.parametrize("restart", ["again", "unwatched"])
def test_a_main_run_that_begins_again_is_alone_until_its_times_are_taken(audited, restart):
    def main(plan, progress):
        recorded(plan)
        audit.begins(progress)
        progress.stage(restart)
        assert audit.children[0].process.killed
        assert not Path(plan.folder, "beside").exists()
        return to_the_end(plan, progress)

    audit = audited(main, "completed")
    audit.run()
    assert [each.process.killed for each in audit.children] == [True, False]
    assert audit.made == [("beside", True)]


@pytest.mark.parametrize("ended", ["interrupted", "raised", "no CUDA", "not run"])
def test_it_ends_with_a_main_run_that_fails(audited, ended):
    def main(plan, progress):
        recorded(plan)
        audit.begins(progress)
        if ended == "not run":
            raise TargetProblem("it cannot be run")
        error = {"message": "No CUDA GPUs are available", "traceback": ""}
        outcome = "raised" if ended == "no CUDA" else ended
        return recorded(plan, outcome, error=error if ended == "no CUDA" else None)

    audit = audited(main, "completed")
    if ended == "not run":
        with pytest.raises(TargetProblem):
            audit.run()
    else:
        audit.run()
    assert audit.children[0].process.killed
    alone = [] if ended in ("interrupted", "not run") else [(False)]
    assert [begun for _, begun in audit.made] == alone
    assert not (audit.folder / "beside").exists()


def test_one_of_another_plan_is_made_again(audited):
    """Values that left their range after it had begun: the replay on the CPU tells of them."""

    def main(plan, progress):
        recorded(plan)
        audit.begins(progress)
        return recorded(plan, nonfinite=True)

    audit = audited(main, "completed", "completed")
    audit.run()
    assert audit.children[0].process.killed
    assert ("rehearsal", False) in audit.made


def test_late_progress_is_told_at_once_where_it_is():
    late, shown = Late(), Shown()
    late.outline([("loud", 12)])
    late("loud", 3, 12)
    late.show(shown)
    late.stage("again")
    late("loud", 4, 12)
    assert shown.told == [[("loud", 12)], ("loud", 3, 12), "again", ("loud", 4, 12)]
