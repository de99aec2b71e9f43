"""Batches of ranks that were rehearsed are compared, though most ranks of the world recorded nothing."""

from pathlib import Path

import pytest

from auditor.evidence.recorded.data_parallel import RankBatches
from auditor.evidence.table import Evidence
from auditor.recordings.folder import SCHEMA, RecordingWriter, write_manifest
from auditor.recordings.schema.dist import BatchDigestRow
from auditor.recordings.schema.run import StepRow
from auditor.runs.rank_recordings import RankedRecording


def rank(folder: Path, number: int, digests: str, played: list[int]) -> None:
    """A rank of 64 whose loader gives a batch of such a digest in each step."""
    writer = RecordingWriter(folder / f"rank{number}")
    loader = writer.site("/train.py", 3, "main")
    for step, digest in enumerate(digests):
        row = BatchDigestRow(loader_at=loader, rank=number, ranks=64, digest=digest)
        done = StepRow(us=1.0)
        for each in (row, done):
            each.pass_name, each.step = "loud", step
            writer.add(each)
    writer.close()
    facts = {"schema": SCHEMA, "cwd": "/", "device": "null", "outcome": "completed"}
    more = {"rank": number, "world_size": 64, "environment": {}, "played": played}
    write_manifest(writer.folder, {**facts, **more})


@pytest.mark.parametrize(
    ("second", "played", "same"),
    [
        ("abcd", [0, 63], [4]),
        ("efgh", [0, 63], [0]),
        ("abcd", [0, 5, 63], []),  # one of the rehearsed ranks is missing
        ("abcd", [], []),  # 62 real ranks are missing
    ],
)
def test_those_that_were_rehearsed_are_enough(tmp_path, second, played, same):
    rank(tmp_path, 0, "abcd", played)
    rank(tmp_path, 63, second, played)
    table = Evidence(RankedRecording(tmp_path)).get(RankBatches)
    assert table.world_size == 64
    assert [each.steps for each in table.each] == same
