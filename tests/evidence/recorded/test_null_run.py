"""The run on the null device against the rehearsal: ways, partings, what lines asked."""

from types import SimpleNamespace

import pytest

from auditor.evidence.recorded.null_run import (
    DeviceRequests,
    NullRun,
    Parting,
    _parting,
    unseen_waits,
)
from auditor.model import Site
from auditor.recordings.schema.sync import CallRow, CopyRow, CourseRow, DeviceWorkRow, ReadRow


def site(line):
    return Site("t.py", line, "step", "")


def evidence(shadow=True, **parts):
    kinds = {CourseRow: "course", DeviceWorkRow: "work", ReadRow: "reads", CopyRow: "copies"}
    kinds |= {CallRow: "calls"}
    return SimpleNamespace(
        rows=lambda kind: parts.get(kinds[kind], []),
        recording=SimpleNamespace(site=site, device=SimpleNamespace(shadow=shadow)),
        inside=lambda name: parts.get("inside"),
    )


@pytest.mark.parametrize(
    ("shadow", "null", "after", "theirs", "ours"),
    [
        ([1, 2], [1, 2], None, None, None),
        ([1, 2], [1, 3], 1, 2, 3),
        ([1, 2], [2], None, 1, 2),
        ([1, 2, 3], [1, 2], 2, 3, None),
        ([1], [1, 2], 1, None, 2),
        ([], [], None, None, None),
        ([], [1], None, None, 1),
    ],
)
def test_the_first_difference(shadow, null, after, theirs, ours):
    found = _parting(5, list(map(site, shadow)), list(map(site, null)))
    if theirs is None and ours is None:
        assert found is None
        return
    places = [None if line is None else site(line) for line in (after, theirs, ours)]
    assert found == Parting(5, *places)
    assert f"another path in step 5{'' if after is None else f' after t.py:{after}'}: on to" in (
        found.sentence
    )
    assert ("the step's end" in found.sentence) is (None in (theirs, ours))


def work(at, step, launches=0, waits=0, calls=()):
    return SimpleNamespace(at=at, step=step, launches=launches, waits=waits, calls=list(calls))


def run(*asked, steps=4, compared=1, parting=None, sized=()):
    lines = {("t.py", each.site.line): each for each in asked}
    return NullRun(evidence(), steps, compared, parting, sized, 0, 0, lines)


def waited(line, *on, launches=0):
    return DeviceRequests(site(line), launches, len(on), frozenset(on))


def test_waits_that_the_rehearsal_did_not_see():
    found = run(waited(9, 0, 1), waited(3, 0, 1, 2), waited(4, 0), waited(5, 0, 1), waited(6, 1, 2))
    row = SimpleNamespace
    shadow = evidence(reads=[row(at=5)], copies=[row(at=6)], calls=[row(at=7)])
    assert [each.site.line for each in unseen_waits(found, shadow)] == [3, 9]
    assert [each.site.line for each in unseen_waits(found, shadow, 0.75)] == [3]
    within = evidence(shadow=False, inside=shadow)
    assert [each.site.line for each in unseen_waits(found, within)] == [3, 9]
    assert unseen_waits(found, evidence(shadow=False)) == ()
    assert unseen_waits(run(waited(3, 0), steps=0), shadow) == ()


def test_launches_of_a_step():
    one = run(waited(3, launches=6), waited(4, launches=2))
    assert (one.launches, one.busiest.site.line) == (2.0, 3)
    assert run(waited(3, launches=6), steps=0).launches == 6.0
    assert run().busiest is None and run().launches == 0.0


@pytest.mark.parametrize(
    ("more", "whole"),
    [
        ({}, True),
        ({"compared": 0}, False),
        ({"parting": Parting(1, None, None, None)}, False),
        ({"sized": (site(3),)}, False),
    ],
)
def test_memory_is_judged_where_all_went_the_same_way(more, whole):
    found = run(**more)
    assert (found.memory is found.evidence) is whole
    assert whole or found.memory is None
