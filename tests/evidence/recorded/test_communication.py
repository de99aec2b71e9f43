"""What ranks hold and exchange, of recordings made by hand."""

from pathlib import Path

import pytest

from auditor.evidence.recorded.data_parallel import Communication, communication_of
from auditor.evidence.table import Evidence
from auditor.recordings.folder import SCHEMA, RecordingWriter, write_manifest
from auditor.recordings.schema.dist import CommunicationRow, RankMemoryRow
from auditor.recordings.schema.run import StepRow
from auditor.rule import NotLooked
from auditor.runs.rank_recordings import RankedRecording
from tests.evidence.recorded.rows import steps


def rank(folder: Path, number: int, calls, *, memory=None, played=(0, 3)):
    """A rank that issues in its steps what ``calls`` lists: (step, line, what, bytes, between)."""
    writer = RecordingWriter(folder / f"rank{number}")
    for step, line, what, nbytes, between in calls:
        site = writer.site("/train.py", line, "step")
        row = CommunicationRow(at=site, what=what, ranks=4, dtype="float32", bytes_in=nbytes)
        row.bytes_out = 2 * nbytes
        row.between, row.waited_at = between, None if between is None else site
        row.pass_name, row.step = "loud", step
        writer.add(row)
    for step in range(3):
        done = StepRow(us=1.0, peak_allocated=1000 + step)
        done.pass_name, done.step = "loud", step
        writer.add(done)
    if memory is not None:
        held = RankMemoryRow(parameters=memory[0], gradients=memory[1], optimizer=memory[2])
        held.pass_name, held.step = "loud", 2
        writer.add(held)
    writer.close()
    facts = {"schema": SCHEMA, "cwd": "/", "device": "null", "outcome": "completed"}
    more = {"rank": number, "world_size": 4, "environment": {}, "played": list(played)}
    write_manifest(writer.folder, {**facts, **more})


def found(folder: Path):
    return communication_of(Evidence(RankedRecording(folder)))


def test_equal_rows_of_ranks_are_one_and_others_say_whose_they_are(tmp_path):
    shared = [(step, 7, "all_gather", 100, None) for step in range(2)]
    rank(tmp_path, 0, [*shared, (1, 9, "all_reduce", 50, 0)], memory=(200, 200, 400))
    rank(tmp_path, 3, shared)
    told = found(tmp_path)
    assert (told.world_size, told.played, told.steps) == (4, True, 2)
    gather, reduce = told.exchanges
    wanted = (7, 1.0, 100.0, 200.0)
    assert (gather.site.line, gather.per_step, gather.bytes_in, gather.bytes_out) == wanted
    assert (gather.of_ranks, gather.waited, gather.between) == ((0, 3), None, None)
    assert (reduce.of_ranks, reduce.per_step, reduce.between) == ((0,), 0.5, 0)
    first, last = told.ranks
    assert (first.peak_bytes, first.other_bytes, last.other_bytes) == (1002, 202, None)
    assert (first.collectives, first.bytes_in, last.collectives) == (1.5, 125.0, 1.0)


def test_the_most_bytes_come_first(tmp_path):
    rank(tmp_path, 0, [(0, 1, "barrier", 0, 0), (0, 2, "broadcast", 9, 0)])
    rank(tmp_path, 3, [])
    assert [each.what for each in found(tmp_path).exchanges] == ["broadcast", "barrier"]


def test_one_process_is_not_asked(seen):
    with pytest.raises(NotLooked, match="one process"):
        seen(steps=steps(4), communication=[]).get(Communication)
    assert communication_of(seen(steps=steps(4))) is None


def test_several_ranks_without_collectives_are_none(seen):
    told = seen(steps=steps(4), communication=[], manifest={"world_size": 2})
    assert told.get(Communication).each == ()
