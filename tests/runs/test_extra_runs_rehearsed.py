"""A rehearsal inside a recording decides the rules that a CPU cannot, and no others."""

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.recorded.machine import Machine
from auditor.evidence.table import Evidence
from auditor.judging import engine
from auditor.model import Finding, Severity, Site
from auditor.recordings.folder import SCHEMA, Recording, RecordingWriter, write_manifest
from auditor.recordings.writer import store_sources
from auditor.rule import Rule
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


def test_a_comment_that_silences_the_rehearsals_finding_is_used(tmp_path):
    main = recorded(tmp_path, "cpu", "x = 1  # audit: ignore[SYNC901]\n")
    recorded(tmp_path / REHEARSAL, "rehearse")
    judged = engine.judge(Evidence(main), (NeedsGpuPath,))
    assert (judged.findings, judged.warnings, judged.verdicts[0].reason) == (
        (),
        (),
        "silenced in the source",
    )


def test_bytes_of_the_host_stay_where_the_rehearsal_saw_nothing(tmp_path):
    main = recorded(tmp_path, "cpu")
    recorded(tmp_path / REHEARSAL, "rehearse")
    judged = engine.judge(Evidence(main), (GrowsOnTheHost,))
    assert [(f.code, f.seen_on) for f in judged.findings] == [
        ("MEM903", "cpu")
    ] and judged.verdicts[0].status == "found"
