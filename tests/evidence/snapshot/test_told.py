"""What the tables say of each recorded memory snapshot: every field and every property.

``python -m tests.evidence.snapshot.test_told`` writes ``told.json`` anew; read its diff before
committing it.
"""

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from auditor.rules.mem.peaks import PeakHolders
from auditor.rules.mem.varying_sizes import VaryingSizes
from auditor.rules.sync.driver_calls import SegmentRequests
from auditor.rules.sync.waiting import CacheChurn

from auditor.evidence.snapshot.history import Allocations
from auditor.evidence.snapshot.state_at import NeverFreed, Snapshot
from auditor.evidence.snapshot.what_if import OutOfMemory, WhatIf
from auditor.evidence.table import Evidence, Table
from auditor.recordings.standalone import SnapshotRecording
from auditor.rule import NotLooked
from tests.evidence.trace.test_told import plain
from tests.recorded_traces import OURS

TOLD = Path(__file__).with_name("told.json")
TABLES: tuple[type[Table], ...] = (
    Allocations,
    CacheChurn,
    NeverFreed,
    OutOfMemory,
    PeakHolders,
    SegmentRequests,
    Snapshot,
    VaryingSizes,
    WhatIf,
)
LEFT_OUT = ("reserved", "allocated", "active", "time_us", "history", "replays", "segments")
"""Columns with a number for each event, and what is made of them."""


def cases() -> dict[str, Path]:
    """Snapshots by the name of their folder."""
    return {path.parent.name: path for path in sorted((OURS / "data").glob("snap_*/*.gz"))}


def short(told: Any) -> Any:
    """Without long columns."""
    if isinstance(told, dict):
        return {
            name: len(each) if name in LEFT_OUT and isinstance(each, list) else short(each)
            for name, each in told.items()
            if name not in ("history", "replays")
        }
    return [short(each) for each in told] if isinstance(told, list) else told


def told(path: Path, folder: Path) -> dict[str, Any]:
    """By table what it says, or why it says nothing."""
    (folder / "snapshot.pickle").write_bytes(gzip.decompress(path.read_bytes()))
    evidence = Evidence(SnapshotRecording(folder / "snapshot.pickle"))
    found = {}
    for table in TABLES:
        try:
            found[table.__name__] = short(plain(evidence.get(table)))
        except NotLooked as why:
            found[table.__name__] = str(why)
    return found


KNOWN = json.loads(TOLD.read_text()) if TOLD.is_file() else {}


@pytest.mark.parametrize("case", sorted(KNOWN))
def test_what_the_tables_say_of_a_snapshot(case: str, tmp_path: Path) -> None:
    found = told(cases()[case], tmp_path)
    for table, known in KNOWN[case].items():
        assert found[table] == known, (
            f"{table}: if it is meant: python -m tests.evidence.snapshot.test_told"
        )
    assert found.keys() == KNOWN[case].keys()


def test_every_snapshot_is_among_them() -> None:
    assert KNOWN.keys() == cases().keys()


if __name__ == "__main__":
    lines = []
    for case, path in cases().items():
        with tempfile.TemporaryDirectory() as folder:
            tables = ",\n".join(
                f"{json.dumps(name)}: {json.dumps(each, ensure_ascii=False)}"
                for name, each in told(path, Path(folder)).items()
            )
            lines.append(f"{json.dumps(case)}: {{\n{tables}\n}}")
    TOLD.write_text("{\n" + ",\n".join(lines) + "\n}\n")
