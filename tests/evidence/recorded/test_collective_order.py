"""Where the ranks part, of recordings made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from auditor.evidence import CollectiveOrder
from auditor.evidence.table import Evidence
from auditor.recordings.folder import SCHEMA, RecordingWriter, write_manifest
from auditor.recordings.schema import CollectiveCallRow, StepRow
from auditor.rule import NotLooked
from auditor.runs.rank_recordings import RankedRecording


def rank(folder: Path, number: int, calls: list[tuple[str, int, int]], steps: int) -> None:
    """A rank that makes these calls (function, numbers, steps begun) and completes so many
    steps.
    """
    writer = RecordingWriter(folder / f"rank{number}")
    for what, numbers, total in calls:
        site = writer.site("/train.py", 10 * (number + 1), "step")
        call = CollectiveCallRow(at=site, what=what, numbers=numbers, total=total)
        call.pass_name, call.step = "quiet", 0
        writer.add(call)
    writer.touch("collective_calls")
    for step in range(steps):
        row = StepRow(us=1.0)
        row.pass_name, row.step = "quiet", step
        writer.add(row)
    writer.close()
    facts = {"schema": SCHEMA, "cwd": "/", "device": "cpu", "outcome": "completed"}
    write_manifest(writer.folder, {**facts, "rank": number, "world_size": 2, "environment": {}})


def parting(tmp_path, first, second, steps=(5, 5)):
    for number, calls in enumerate((first, second)):
        rank(tmp_path, number, calls, steps[number])
    return Evidence(RankedRecording(tmp_path)).get(CollectiveOrder).parting


SUM, WAIT = ("all_reduce", 1, 0), ("barrier", 0, 1)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([SUM, WAIT], [SUM, SUM], (1, "barrier", "all_reduce")),
        ([SUM], [("all_reduce", 2, 0)], (0, "all_reduce", "all_reduce")),
        ([SUM, WAIT], [SUM, WAIT], None),
        ([], [], None),
        ([("all_gather", 1, 0)], [("all_gather", 2, 0)], None),
    ],
)
def test_the_first_call_that_differs(tmp_path, first, second, expected):
    found = parting(tmp_path, first, second)
    assert (found and (found.number, found.one.what, found.other.what)) == expected


@pytest.mark.parametrize(("completed", "parts"), [(2, True), (1, False)])
def test_a_call_is_left_out_by_who_completed_its_step(tmp_path, completed, parts):
    found = parting(tmp_path, [SUM, WAIT], [SUM], (9, completed))
    assert (found is not None) is parts
    if found is not None:
        assert (found.one.rank, found.one.site.line, found.other, found.other_rank) == (
            0,
            10,
            None,
            1,
        )


def test_the_call_may_be_the_later_rank_s(tmp_path):
    found = parting(tmp_path, [SUM], [SUM, WAIT], (3, 9))
    assert (found.one.rank, found.one.site.line, found.other_rank, found.other_steps) == (
        1,
        20,
        0,
        3,
    )


def test_one_recording_alone_tells_nothing(seen):
    with pytest.raises(NotLooked, match="one process"):
        seen(collective_calls=[]).get(CollectiveOrder)
