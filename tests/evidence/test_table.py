"""One Evidence of a recording: every table is built once over a whole ``audit analyze``, every part
is read once.
"""

from __future__ import annotations

import gzip
import json
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from auditor.allocator import CachingAllocator
from auditor.cli import analyze
from auditor.evidence.table import Evidence, Table
from auditor.judging import engine
from auditor.model import Finding, Severity
from auditor.recordings.folder import SCHEMA, Recording, RecordingWriter, write_manifest
from auditor.recordings.writer import store_sources
from auditor.rule import Rule
from tests.timeline.kineto import text, training

PARTS = (
    "amp",
    "backward",
    "reused",
    "batches",
    "loaders",
    "graphs",
    "reads",
    "calls",
    "modes",
    "optimizer",
    "saves",
)
"""Parts without a row: their tables are built all the same."""


def recorded(folder: Path, device: str = "cuda") -> Recording:
    """Twelve steps of each pass, a line of source, a trace and a snapshot."""
    home = folder.parent / "home"
    home.mkdir(parents=True, exist_ok=True)
    (home / "trainer.py").write_text("import torch\n")
    writer = RecordingWriter(folder)
    for part in PARTS:
        writer.touch(part)
    for name in ("quiet", "loud"):
        for step in range(12):
            writer.add_fields("steps", {"pass": name, "step": step, "us": 1000.0, "rss": 1 << 20})
    writer.close()
    (folder / "trace.json.gz").write_bytes(gzip.compress(text(training(3)).encode()))
    allocator = CachingAllocator(1 << 40)
    allocator.free(
        allocator.malloc(1 << 22, frames=({"filename": "trainer.py", "line": 1, "name": "step"},))
    )
    (folder / "snapshot.pickle").write_bytes(pickle.dumps(allocator.snapshot()))
    facts = {"schema": SCHEMA, "target": "trainer:step", "cwd": str(home), "device": device}
    facts |= {"outcome": "completed"}
    passes = [{"name": "quiet", "steps": 12}, {"name": "loud", "steps": 12}]
    sources = store_sources(folder, str(home), iter([str(home / "trainer.py")]))
    write_manifest(
        folder, {**facts, "passes": passes, "sources": sources, "environment": {}, "steps": 24}
    )
    return Recording(folder)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> tuple[Counter[Any], Counter[Any]]:
    """How often each table was built (by name and folder), and each part opened."""
    builds, opened = Counter[Any](), Counter[Any]()
    build, open_file = Evidence._build, Path.open

    def counting(self: Evidence, table: type[Table]) -> Table:
        builds[table.__name__, self.recording.folder] += 1
        return build(self, table)

    def opening(self: Path, *args: Any, **more: Any) -> Any:
        if self.suffix == ".jsonl":
            opened[self] += 1
        return open_file(self, *args, **more)

    monkeypatch.setattr(Evidence, "_build", counting)
    monkeypatch.setattr(Path, "open", opening)
    return builds, opened


def test_a_whole_analyze_builds_no_table_twice(tmp_path, counted, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = recorded(tmp_path / "recording").folder
    recorded(folder / "rehearsal", "rehearse")
    builds, opened = counted
    for table in list(builds):
        del builds[table]
    opened.clear()
    options = {"select": (), "ignore": (), "fail_on": None, "formats": (), "quiet": True}
    assert analyze.analyze(paths=(str(folder),), out=str(tmp_path / "out"), **options) == 0
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert (
        report["layers"] and report["parts"] and report["series"]
    )  # the charts were drawn from the same evidence
    assert len(builds) > 60 and set(builds.values()) == {1}
    steps = folder / "steps.jsonl"
    assert opened[steps] <= 2  # rows, and the numbers of steps in the run
    assert {
        path.stem: times for path, times in opened.items() if times > 1 and path.stem != "steps"
    } == {}


def test_a_table_of_a_rule_pack_may_read_its_recording(tmp_path):
    """As packs were written before there was an Evidence."""

    class Clocks(Table):
        parts = ("steps",)
        steps: tuple[int, ...] = ()

        @classmethod
        def build(cls, recording: Any) -> Clocks:
            made = cls()
            made.steps = tuple(
                row["step"] for row in recording.rows("steps") if row["pass"] == "loud"
            )
            assert (
                recording.has("reads")
                and recording.manifest["device"] == "cuda"
                and recording.source("trainer.py")
            )
            return made

    class SlowClock(Rule):
        """A clock is slow."""

        code, severity, since = "TIME901", Severity.NOTE, "0.1"

        def detect(self, clocks: Clocks) -> Any:
            yield Finding(None, f"{len(clocks.steps)} steps")

    SlowClock.detect.__annotations__["clocks"] = Clocks
    (finding,) = engine.judge(Evidence(recorded(tmp_path / "recording")), (SlowClock,)).findings
    assert finding.message == "12 steps"


def test_what_no_recording_has_is_no_attribute(tmp_path):
    with pytest.raises(AttributeError, match="rowz"):
        Evidence(recorded(tmp_path / "recording")).rowz  # noqa: B018
