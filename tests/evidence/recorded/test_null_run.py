"""The run on the null device against the rehearsal: ways, partings, what lines asked."""

from types import SimpleNamespace

import pytest

from auditor.evidence.recorded.null_run import (
    DeviceRequests,
    NullRun,
    Parting,
    _parting,
    null_run,
    unseen_waits,
)
from auditor.model import Site
from auditor.recordings.schema.run import StepRow
from auditor.recordings.schema.sync import CallRow, CopyRow, CourseRow, DeviceWorkRow, ReadRow


def site(line):
    return Site("t.py", line, "step", "")


def evidence(shadow=True, **parts):
    kinds = {CourseRow: "course", DeviceWorkRow: "work", ReadRow: "reads", CopyRow: "copies"}
    kinds |= {CallRow: "calls", StepRow: "steps"}
    device = SimpleNamespace(shadow=shadow, null=not shadow)
    return SimpleNamespace(
        rows=lambda kind: parts.get(kinds[kind], []),
        recording=SimpleNamespace(site=site, device=device, run_step=lambda _, step: step + 10),
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


def course(step, *places, sized=(), read=(), answered=0):
    facts = {"sized": sized, "read": read, "answered": answered}
    return SimpleNamespace(global_step=step, places=places, **facts)


def test_a_run_is_judged_up_to_the_parting():
    """Two rows are one way; the warm-up's ten steps count in the run's numbers."""
    theirs = [course(10, 1, 2, 2), course(11, 3), course(12, 9), course(14, 1)]
    ours = [
        course(10, 1, sized=(8, 2), read=("1", "2"), answered=2),
        course(10, 1, 2, sized=(2,), answered=1),
        course(11, 3, read=("0",)),
        course(12, 7, sized=(5,), read=("0",), answered=1),
    ]
    timed = [SimpleNamespace(step=n, pass_name="loud") for n in range(4)]
    works = [work(6, 0, 3, 1, ["a"]), work(6, 1, 2), work(6, 0, 0, 2, ["b", "a"]), work(4, 1, 0)]
    works += [work(None, 0, 9), work(6, 2, 9, 9)]
    quiet = SimpleNamespace(step=9, pass_name="quiet")
    null = evidence(shadow=False, course=ours, steps=[*timed, quiet], work=works)
    shadow = evidence(course=theirs, inside=null)
    found = null_run(shadow)
    assert (found.steps, found.compared, found.parting) == (
        2,
        3,
        Parting(12, None, site(9), site(7)),
    )
    assert ([each.line for each in found.sized], found.answered, found.reads) == ([2, 8], 3, 3)
    asked = DeviceRequests(site(6), 5, 3, frozenset({0}), frozenset("ab"))
    assert found.lines == {("t.py", 4): DeviceRequests(site(4)), ("t.py", 6): asked}
    whole = null_run(
        evidence(course=theirs[:2], inside=evidence(False, course=ours[:3], steps=timed))
    )
    assert (whole.steps, whole.compared, whole.parting) == (2, 2, None)


def test_without_a_null_device_or_a_rehearsal_there_is_no_run():
    assert null_run(evidence()) is None
    assert null_run(evidence(inside=evidence())) is None
    assert null_run(evidence(shadow=False)) is None
