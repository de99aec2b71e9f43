"""Collectives by line."""

from __future__ import annotations

import pytest
from auditor.rules.dist.communication import Collectives

from auditor.rule import NotLooked
from tests.evidence.recorded.rows import loud, steps


def test_rows_of_a_line_are_one(seen):
    def row(step, at, n, nbytes, us, what="all_reduce"):
        return loud(step, at=at, what=what, n=n, bytes=nbytes, us=us, ranks=4)

    rows = [row(0, 1, 2, 20, 5.0), row(1, 1, 4, 60, 7.0), row(3, 1, 4, 20, 9.0)]
    table = seen(
        sites=[3, 5],
        steps=steps(4),
        collectives=[*rows, row(2, 0, 1, 0, 1.0, "barrier")],
    ).get(Collectives)
    first, second = table.each
    assert (first.what, first.site.line, first.pattern.seen) == ("barrier", 3, (2,))
    assert (second.pattern.seen, second.pattern.of, second.per_step) == ((0, 1, 3), 4, 4)
    assert (second.us, second.ranks) == (7.0, 4)


def test_several_ranks_without_collectives_are_clean(seen):
    told = seen(steps=steps(4), collectives=[], manifest={"world_size": 2})
    assert told.get(Collectives).each == ()


def test_one_process_is_not_asked(seen):
    with pytest.raises(NotLooked, match="one process"):
        seen(steps=steps(4), collectives=[]).get(Collectives)
