"""Backward calls that walk the same nodes more than once in a step."""

from __future__ import annotations

import pytest
from auditor.rules.graph.backward_rewalks import BackwardRewalks

from tests.evidence.recorded.rows import loud, steps


def call(step, at=0, again=0, newer=0, *, nodes=10, summed=True, kept=True, **more):
    row = {"nodes": nodes, "again": again, "newer": newer, "kept": kept, "summed": summed}
    return loud(step, at=at, **row, **more)


def table(seen, rows):
    return seen(sites=[5, 6], steps=steps(5), rewalked=rows).get(BackwardRewalks)


def chunks(step, counts=((0, 0), (4, 0), (8, 4)), **more):
    return [call(step, 0, again, newer, **more) for again, newer in counts]


@pytest.mark.parametrize(("watched", "found"), [(2, []), (3, [3]), (5, [5])])
def test_ever_more_is_walked_on_enough_steps(seen, watched, found):
    rows = [row for step in range(watched) for row in chunks(step)]
    growing = list(table(seen, rows).growing(0.6))
    assert [each.steps for each in growing] == found
    assert all((each.again, each.sites[0].line) == (12, 5) for each in growing)


@pytest.mark.parametrize(
    "counts",
    [
        ((0, 0), (4, 0)),
        ((0, 0), (4, 0), (4, 0)),
        ((0, 0), (4, 0), (8, 4), (8, 4)),
        ((0, 0), (0, 0), (8, 4)),
    ],
)
def test_what_does_not_grow(seen, counts):
    rows = [row for step in range(5) for row in chunks(step, counts)]
    assert list(table(seen, rows).growing(0.6)) == []


def test_what_is_not_summed_is_left_out(seen):
    rows = [row for step in range(5) for row in chunks(step, summed=False)]
    assert list(table(seen, rows).growing(0.6)) == []


@pytest.mark.parametrize(("watched", "newer", "found"), [(3, 0, [0.25]), (2, 0, []), (3, 1, [])])
def test_losses_over_one_part(seen, watched, newer, found):
    rows = [each for step in range(watched) for each in (call(step), call(step, 1, 5, newer))]
    shared = list(table(seen, rows).shared(0.6))
    assert [each.share for each in shared] == found
    assert all([site.line for site in each.sites] == [5, 6] for each in shared)
