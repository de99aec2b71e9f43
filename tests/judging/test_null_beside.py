"""The run on the null device beside a rehearsal: it decides memory where it went the same way,
confirms waits, and says where it went another way.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.null_run import NullRun, null_run, unseen_waits
from auditor.evidence.table import Evidence
from auditor.judging import engine, null_beside
from auditor.model import Finding, Severity, Site
from auditor.recordings.folder import SCHEMA, Recording, RecordingWriter, write_manifest
from auditor.rule import NotLooked, Rule

Steps = list[list[int]]


@dataclass(frozen=True)
class Bytes(Rule):
    """Says where it looked."""

    code = "MEM901"
    severity = Severity.WARNING
    since = "0.2"
    rehearsed = True
    native = True

    def detect(self, machine: Machine) -> Iterator[Finding]:
        yield Finding(Site("t.py", 1), "seen", seen_on=machine.device)


@dataclass(frozen=True)
class Blind(Bytes):
    """Cannot tell on the null device."""

    code = "MEM902"

    def detect(self, machine: Machine) -> Iterator[Finding]:
        if machine.on.null:
            raise NotLooked("not here")
        yield Finding(Site("t.py", 1), "seen", seen_on=machine.device)


@dataclass(frozen=True)
class Waits(Rule):
    """Finds line 2."""

    code = "SYNC001"
    severity = Severity.WARNING
    since = "0.2"
    rehearsed = True

    def detect(self, machine: Machine) -> Iterator[Finding]:
        yield Finding(Site("t.py", 2), "seen", seen_on=machine.device)


def made(
    folder: Path,
    device: str,
    ways: Steps = (),
    *,
    waits: int | None = None,
    sized: int | None = None,
    read: int | None = None,
) -> Recording:
    """``ways`` are the lines of each step of the pass ``loud``; ``waits`` is a line that makes the
    host wait in each, ``read`` one where the shadow saw that.
    """
    writer = RecordingWriter(folder)
    sites = {line: writer.site(str(folder / "t.py"), line, "step") for line in range(1, 6)}
    for part in ("reads", "copies", "calls"):
        writer.touch(part)
    for step, way in enumerate(ways):
        common = {"pass": "loud", "step": step}
        writer.add_fields("steps", {**common, "us": 1.0, "start_us": 0.0})
        course = {"places": [sites[line] for line in way], "read_at": [], "read": []}
        course |= {"sized": [sites[sized]] if sized else [], "global_step": step}
        writer.add_fields("course", {**common, **course})
        if waits:
            work = {"n": 1, "launches": 3, "waits": 1, "calls": ["cudaStreamSynchronize"]}
            writer.add_fields("device_work", {**common, "at": sites[waits], **work})
        if read:
            writer.add_fields("reads", {**common, "at": sites[read], "kind": "item", "n": 1})
    writer.close()
    facts = {"schema": SCHEMA, "cwd": str(folder), "device": device, "outcome": "completed"}
    passes = [{"name": "loud", "steps": len(ways)}]
    write_manifest(folder, {**facts, "passes": passes, "environment": {"device": "NVIDIA L4"}})
    return Recording(folder)


WAY = [[1, 2, 3]] * 6


def beside(folder: Path, ways: Steps = WAY, **null: int) -> Evidence:
    """A run on the CPU, its rehearsal and the null device's run."""
    main = made(folder, "cpu")
    made(folder / "rehearsal", "rehearse", WAY, read=2)
    made(folder / "null", "null", ways, **null)
    for name in ("rehearsal", "null"):  # all of one program
        recording = Recording(folder / name)
        recording.manifest["cwd"] = str(folder / name)
        write_manifest(recording.folder, recording.manifest)
    return Evidence(main)


def run_of(evidence: Evidence) -> NullRun:
    run = null_run(evidence)
    assert run is not None
    return run


def test_the_null_device_decides_memory_where_it_went_the_same_way(tmp_path: Path) -> None:
    judged = engine.judge(beside(tmp_path), (Bytes, Blind))
    assert {f.code: f.seen_on for f in judged.findings} == {
        "MEM901": "null",
        "MEM902": "rehearsal",  # where it cannot tell the shadow does
    }


@pytest.mark.parametrize(
    ("ways", "null"),
    [
        ([[1, 2, 3]] * 4 + [[1, 4, 3]] * 2, {}),
        ([[1, 2, 3]] * 5 + [[1, 2]], {}),
        (WAY, {"sized": 2}),
    ],
    ids=["another line", "ends earlier", "a size of values"],
)
def test_memory_is_the_shadows_if_values_matter(
    tmp_path: Path, ways: Steps, null: dict[str, int]
) -> None:
    evidence = beside(tmp_path, ways, **null)
    assert run_of(evidence).memory is None
    judged = engine.judge(evidence, (Bytes,))
    assert [f.seen_on for f in judged.findings] == ["rehearsal"]
    assert len(list(null_beside.warnings(evidence))) == 1


def test_the_first_difference_is_told_and_what_comes_after_is_not_judged(tmp_path: Path) -> None:
    evidence = beside(tmp_path, [[1, 2, 3]] * 4 + [[1, 4, 3]] * 2, waits=2)
    run = run_of(evidence)
    assert (run.steps, run.lines["t.py", 2].waits) == (4, 4)
    (said,) = null_beside.warnings(evidence)
    assert "in step 4 after t.py:1: on to t.py:4, in the rehearsal to t.py:2" in said


@pytest.mark.parametrize(
    ("null", "said"),
    [
        ({"waits": 2}, "the host waits here on 6 of 6 steps (cudaStreamSynchronize)"),
        ({}, "no wait was seen here in 6 steps"),
    ],
)
def test_a_wait_of_the_shadow_is_confirmed_or_not(
    tmp_path: Path, null: dict[str, int], said: str
) -> None:
    (found,) = engine.judge(beside(tmp_path, **null), (Waits,)).findings
    assert found.seen_on == "rehearsal"
    assert found.facts == (("torch's own CUDA code", said),)


def test_waits_that_the_shadow_did_not_see_are_named(tmp_path: Path) -> None:
    evidence = beside(tmp_path / "new", waits=3)
    assert [asked.site.line for asked in unseen_waits(run_of(evidence), evidence)] == [3]
    assert "t.py:3 (cudaStreamSynchronize)" in " ".join(null_beside.method(evidence))
    known = beside(tmp_path / "known", waits=2)
    assert unseen_waits(run_of(known), known) == ()


def test_without_a_run_on_the_null_device_the_one_command_is_named(tmp_path: Path) -> None:
    recording = made(tmp_path, "cpu")
    made(tmp_path / "rehearsal", "rehearse", WAY)
    assert list(null_beside.method(Evidence(recording))) == []
    recording.manifest["null_device"] = {"lacking": "no CUDA in it", "remedy": "pip install x"}
    write_manifest(tmp_path, recording.manifest)
    (said,) = null_beside.method(Evidence(Recording(tmp_path)))
    assert "no CUDA in it" in said and "pip install x" in said


def test_what_the_method_says_of_it(tmp_path: Path) -> None:
    (said,) = null_beside.method(beside(tmp_path, waits=2))
    assert "6 steps of the same program on torch's own CUDA code, played as NVIDIA L4" in said
    assert "3 launches a step, most of them at t.py:2; its allocator is judged" in said
