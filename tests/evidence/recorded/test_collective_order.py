"""Where the ranks part, of recordings made by hand."""

import json
from pathlib import Path
from typing import Any

import pytest
from auditor.rules.dist.communication import CollectiveOrder
from auditor.rules.dist.rows import CollectiveCallRow

from auditor.evidence.table import Evidence
from auditor.recordings.folder import SCHEMA, RecordingWriter, write_manifest
from auditor.recordings.schema.dist import CommunicationRow
from auditor.recordings.schema.run import StepRow
from auditor.runs.rank_recordings import RankedRecording


def rank(
    folder: Path, number: int, calls: list[tuple[str, int, int]], steps: int, **ended: Any
) -> None:
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
    more = {"rank": number, "world_size": 2, "environment": {}, "sources": {"train.py": "0"}}
    write_manifest(writer.folder, {**facts, **more, **ended})


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
        wanted = (0, 10, None, 1)
        assert (found.one.rank, found.one.site.line, found.other, found.other_rank) == wanted


TRACE = 'File "/lib/torch/autograd/graph.py", line 979 in _engine_run_backward\n'
STUCK = {"file": "/train.py", "line": 7, "traceback": TRACE}
DIED = {
    "outcome": "raised",
    "error": {"type": "RuntimeError", "message": "[gloo/pair.cc] Read error", **STUCK},
}
ABORTED = {"outcome": "killed", "error": {"type": "SIGABRT", "message": ""}}
HUNG = {
    "outcome": "timeout",
    "error": {
        "type": "Timeout",
        "message": "",
        "traceback": 'Thread 0x1\n  File "/train.py", line 3 in load\n'
        f'Current thread 0x2\n  {TRACE}  File "/train.py", line 8 in step\n',
    },
}
OUT_OF_TIME = {"outcome": "timeout", "error": {"type": "Timeout", "traceback": ""}}


def left(tmp_path, waits, calls, *, steps=4, longer=((*SUM[:2], 4),)):
    rank(tmp_path, 0, [], steps, **waits)
    rank(tmp_path, 1, list(longer), 4, **calls)
    return Evidence(RankedRecording(tmp_path)).get(CollectiveOrder).parting


@pytest.mark.parametrize(
    ("waits", "calls", "line"), [(DIED, ABORTED, 7), (DIED, DIED, 7), (HUNG, OUT_OF_TIME, 8)]
)
def test_a_rank_that_left_the_loop_while_another_waits_for_gradients(tmp_path, waits, calls, line):
    found = left(tmp_path, waits, calls)
    assert (found.one.rank, found.one.what, found.one.step) == (1, "all_reduce", 4)
    assert (found.other.rank, found.other.what, found.other.site.line) == (0, "backward", line)


@pytest.mark.parametrize(
    ("waits", "calls", "more"),
    [
        (DIED, ABORTED, {"steps": 3}),  # it died in a step before
        (DIED, ABORTED, {"longer": [(*SUM[:2], 4), (*WAIT[:2], 4)]}),  # the first call returned
        (DIED, {"outcome": "killed", "error": {"type": "SIGKILL"}}, {}),
        (DIED, {"outcome": "completed"}, {}),
        ({**DIED, "error": {**DIED["error"], "traceback": ""}}, ABORTED, {}),
        ({**DIED, "error": {**DIED["error"], "message": "shape"}}, ABORTED, {}),
        (OUT_OF_TIME, OUT_OF_TIME, {}),
    ],
)
def test_ranks_of_which_one_may_have_died_first(tmp_path, waits, calls, more):
    assert left(tmp_path, waits, calls, **more) is None


def played(folder: Path, number: int, calls, steps: int = 2, world: int = 4) -> None:
    """A rehearsed rank that issues what ``calls`` lists: (step, line, what, bytes)."""
    writer = RecordingWriter(folder / f"rank{number}")
    for step, line, what, nbytes, *group in calls:
        row = CommunicationRow(at=writer.site("/train.py", line, "step"), what=what)
        row.ranks, row.dtype, row.bytes_in = (*group, world)[0], "float32", nbytes
        row.pass_name, row.step = "loud", step
        writer.add(row)
    writer.touch("collective_calls")
    for step in range(steps):
        done = StepRow(us=1.0)
        done.pass_name, done.step = "loud", step
        writer.add(done)
    writer.close()
    facts = {"schema": SCHEMA, "cwd": "/", "device": "null", "outcome": "completed"}
    more = {"rank": number, "world_size": world, "environment": {}, "played": [0, 3]}
    write_manifest(writer.folder, {**facts, **more})


def issued(tmp_path, first, second, steps=(2, 2)):
    for number, calls, n in zip((0, 3), (first, second), steps, strict=True):
        played(tmp_path, number, calls, n)
    return Evidence(RankedRecording(tmp_path)).get(CollectiveOrder).parting


TRAINS = [(0, 5, "all_gather", 8), (0, 6, "all_gather", 8), (0, 6, "reduce_scatter", 64)]
AGAIN = [(1, *each[1:]) for each in TRAINS]
EVALUATES = [(0, 9, "all_gather", 8)]


def test_an_evaluation_of_a_sharded_model_on_one_rank_is_where_the_lines_differ(tmp_path):
    found = issued(tmp_path, [*TRAINS, *EVALUATES, *AGAIN], [*TRAINS, *AGAIN])
    assert (found.number, found.one.rank, found.one.site.line) == (3, 0, 9)
    assert (found.other.rank, found.other.site.line) == (3, 5)


def test_what_only_the_other_rank_issues_at_the_end(tmp_path):
    found = issued(tmp_path, TRAINS, [*TRAINS, *EVALUATES])
    assert (found.number, found.one.rank, found.one.site.line) == (3, 3, 9)
    assert (found.other, found.other_rank) == (None, 0)


@pytest.mark.parametrize(
    ("first", "second", "steps"),
    [
        ([*TRAINS, *AGAIN], [*TRAINS, *AGAIN], (2, 2)),
        (TRAINS, [(0, 7, "all_gather", 8), *TRAINS[1:]], (2, 2)),  # another line, the same call
        (TRAINS, [*TRAINS, (0, 9, "send", 4)], (2, 2)),
        (TRAINS, [*TRAINS, (0, 9, "all_reduce", 4, 2)], (2, 2)),  # of two ranks of four
        (TRAINS, [(*TRAINS[0][:3], 16), *TRAINS[1:]], (2, 2)),  # gathered shards may differ
        ([*TRAINS, *AGAIN], TRAINS, (2, 1)),  # one ended before
    ],
)
def test_rehearsed_ranks_that_do_not_part(tmp_path, first, second, steps):
    assert issued(tmp_path, first, second, steps) is None


def test_real_ranks_are_compared_by_their_calls_alone(tmp_path):
    for number, calls in ((0, TRAINS), (3, [*TRAINS, *EVALUATES])):
        played(tmp_path, number, calls)
        manifest = tmp_path / f"rank{number}" / "manifest.json"
        manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "played": []}))
    assert Evidence(RankedRecording(tmp_path)).get(CollectiveOrder).parting is None
