"""A file judged by itself: nothing that lies beside it counts, even in the folder of a
recording.
"""

from pathlib import Path

import pytest

from auditor.recordings.folder import SCHEMA, TRACE, Recording, RecordingWriter, write_manifest
from auditor.recordings.standalone import SnapshotRecording, TraceRecording


@pytest.mark.parametrize(
    ("kind", "name"), [(TraceRecording, TRACE), (SnapshotRecording, "snapshot.pickle")]
)
def test_nothing_beside_it_is_read(
    tmp_path: Path, kind: type[TraceRecording | SnapshotRecording], name: str
) -> None:
    for folder in (tmp_path, tmp_path / "rehearsal"):
        writer = RecordingWriter(folder)
        writer.add_fields("device_times", {"pass": "quiet", "step": 0, "us": 1.0})
        writer.close()
        write_manifest(folder, {"schema": SCHEMA, "cwd": "", "outcome": "completed"})
    for beside in (TRACE, "snapshot.pickle"):
        (tmp_path / beside).write_bytes(b"")
    whole, bare = Recording(tmp_path), kind(tmp_path / name)
    assert whole.rows("device_times") and whole.inside("rehearsal") is not None
    assert whole.trace and whole.snapshot
    wanted = ([], False, None)
    assert (bare.rows("device_times"), bare.has("device_times"), bare.inside("rehearsal")) == wanted
    assert [path for path in (bare.trace, bare.snapshot) if path] == [tmp_path / name]
