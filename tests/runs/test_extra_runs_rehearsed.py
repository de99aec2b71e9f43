"""A rehearsal inside a recording decides the rules that a CPU cannot, and no others."""

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.table import Evidence
from auditor.judging import engine
from auditor.model import Finding, Severity, Site
from auditor.recordings.folder import SCHEMA, Recording, RecordingWriter, write_manifest
from auditor.recordings.writer import store_sources
from auditor.rule import NotLooked, Rule
from auditor.runs.plan import REHEARSAL


@dataclass(frozen=True)
class NeedsGpuPath(Rule):
    """Says where it looked."""

    code = "SYNC901"
    severity = Severity.WARNING
    since = "0.2"
    rehearsed = True

    def detect(self, machine: Machine) -> Iterator[Finding]:
        machine.nothing_seen_without_cuda("nothing")
        yield Finding(Site("t.py", 1), "seen", seen_on=machine.device)


@dataclass(frozen=True)
class NeedsTimes(Rule):
    """Says where it looked."""

    code = "TIME901"
    severity = Severity.WARNING
    since = "0.2"

    def detect(self, machine: Machine, steps: Steps) -> Iterator[Finding]:
        yield Finding(None, "seen", seen_on=machine.device)


@dataclass(frozen=True)
class SkipsInRehearsal(NeedsGpuPath):
    """Cannot tell in a rehearsal, can tell on a CPU."""

    code = "SYNC902"

    def detect(self, machine: Machine) -> Iterator[Finding]:
        if machine.gpu_path:
            raise NotLooked("not here")
        yield Finding(Site("t.py", 1), "seen", seen_on=machine.device)


@dataclass(frozen=True)
class PricedOnTheCpu(NeedsGpuPath):
    """Finds one line on a CPU, with its price, and another on a GPU."""

    code = "SYNC903"

    def detect(self, machine: Machine) -> Iterator[Finding]:
        line, price = (1, None) if machine.gpu_path else (2, 5.0)
        yield Finding(Site("t.py", line), "seen", lost_us_per_step=price, seen_on=machine.device)


@dataclass(frozen=True)
class TimedOnTheCpu(NeedsGpuPath):
    """Finds one line on both, with its price on a CPU."""

    code = "SYNC904"

    def detect(self, machine: Machine) -> Iterator[Finding]:
        price = None if machine.gpu_path else 5.0
        yield Finding(Site("t.py", 1), "seen", lost_us_per_step=price, seen_on=machine.device)


@dataclass(frozen=True)
class GrowsOnTheHost(NeedsGpuPath):
    """Finds bytes of the host on a CPU, and none on a GPU."""

    code = "MEM903"

    def detect(self, machine: Machine) -> Iterator[Finding]:
        if not machine.gpu_path:
            yield Finding(None, "seen", lost_bytes=4096, seen_on=machine.device)


def recorded(folder, device, source="x = 1\n"):
    writer = RecordingWriter(folder)
    writer.add_fields("steps", {"pass": "quiet", "step": 0, "us": 1.0, "start_us": 0.0})
    writer.close()
    (folder / "t.py").write_text(source)
    sources = store_sources(folder, str(folder), iter([str(folder / "t.py")]))
    manifest = {
        "schema": SCHEMA,
        "cwd": str(folder),
        "device": device,
        "outcome": "completed",
        "sources": sources,
    }
    write_manifest(folder, manifest)
    return Recording(folder)


def test_the_rehearsal_decides_what_a_cpu_cannot(tmp_path):
    main = recorded(tmp_path, "cpu")
    before = engine.judge(Evidence(main), (NeedsGpuPath, NeedsTimes))
    assert [v.status for v in before.verdicts] == ["skipped", "found"]
    recorded(tmp_path / REHEARSAL, "rehearse")
    after = engine.judge(Evidence(main), (NeedsGpuPath, NeedsTimes, SkipsInRehearsal))
    assert [v.status for v in after.verdicts] == ["found", "found", "found"]
    assert {f.code: f.seen_on for f in after.findings} == {
        "SYNC901": "rehearsal",
        "TIME901": "cpu",
        "SYNC902": "cpu",
    }


def test_a_comment_that_silences_the_rehearsals_finding_is_used(tmp_path):
    main = recorded(tmp_path, "cpu", "x = 1  # audit: ignore[SYNC901]\n")
    recorded(tmp_path / REHEARSAL, "rehearse")
    judged = engine.judge(Evidence(main), (NeedsGpuPath,))
    assert (judged.findings, judged.warnings, judged.verdicts[0].reason) == (
        (),
        (),
        "silenced in the source",
    )


def test_a_rehearsal_that_cannot_be_read_is_none(tmp_path):
    main = recorded(tmp_path, "cpu")
    recorded(tmp_path / REHEARSAL, "rehearse")
    (tmp_path / REHEARSAL / "manifest.json").write_text("{")
    assert engine.judge(Evidence(main), (NeedsGpuPath,)).verdicts[0].status == "skipped"


def test_what_the_cpu_measured_stays_beside_what_the_rehearsal_saw(tmp_path):
    main = recorded(tmp_path, "cpu")
    recorded(tmp_path / REHEARSAL, "rehearse")
    judged = engine.judge(Evidence(main), (PricedOnTheCpu,))
    assert sorted((f.site.line, f.seen_on) for f in judged.findings if f.site) == [
        (1, "rehearsal"),
        (2, "cpu"),
    ]


def test_what_the_cpu_timed_comes_before_what_the_rehearsal_could_not(tmp_path):
    main = recorded(tmp_path, "cpu")
    recorded(tmp_path / REHEARSAL, "rehearse")
    (finding,) = engine.judge(Evidence(main), (TimedOnTheCpu,)).findings
    assert (finding.lost_us_per_step, finding.seen_on) == (5.0, "cpu")


def test_bytes_of_the_host_stay_where_the_rehearsal_saw_nothing(tmp_path):
    main = recorded(tmp_path, "cpu")
    recorded(tmp_path / REHEARSAL, "rehearse")
    judged = engine.judge(Evidence(main), (GrowsOnTheHost,))
    assert [(f.code, f.seen_on) for f in judged.findings] == [
        ("MEM903", "cpu")
    ] and judged.verdicts[0].status == "found"
