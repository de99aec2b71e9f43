"""What a re-run's recording says of its loaders."""

import pytest

from auditor.extensions.plan.measured import measured
from auditor.recordings.folder import SCHEMA, Recording, RecordingWriter, write_manifest


@pytest.mark.parametrize(
    ("nbytes", "even"), [((80, 80, 80), True), ((80, 96, 80), False), ((80, 160, 80), True)]
)
def test_batches_are_even_by_their_bytes(tmp_path, nbytes, even):
    """The second step took as many batches as it has times 80 bytes."""
    writer = RecordingWriter(tmp_path / "recording")
    site = writer.site(str(tmp_path / "train.py"), 7, "step")
    writer.add_fields("loaders", {"loader": 1, "made_at": site, "batch_size": 4})
    for step, size in enumerate(nbytes):
        row = {"pass": "loud", "step": step, "loader": 1, "n": max(1, size // 80), "bytes": size}
        writer.add_fields("batches", row)
        writer.add_fields("steps", {"pass": "loud", "step": step, "us": 9.0})
    writer.close()
    facts = {"schema": SCHEMA, "cwd": str(tmp_path), "device": "rehearsal", "outcome": "completed"}
    write_manifest(tmp_path / "recording", {**facts, "sources": {}, "environment": {}})
    (loader,) = measured(Recording(tmp_path / "recording"), 1.0).loaders
    assert loader.even is even
