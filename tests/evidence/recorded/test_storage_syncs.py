"""Waiting for storage in the timing pass, by line, with what it costs a step."""

from __future__ import annotations

import pytest
from auditor.rules.time.storage_syncs import StorageSyncs

from tests.evidence.recorded.rows import quiet, steps


def sync(step, at=0, us=200.0, n=1, stack=()):
    return quiet(step, at=at, name="os.fsync", n=n, us=us, stack=list(stack) or [at])


def test_calls_of_completed_steps_by_line(seen):
    rows = [
        sync(1, at=1, us=100.0),
        sync(0, us=300.0, n=2),
        sync(2, us=500.0),
        sync(4, us=9000.0),  # the step did not complete
    ]
    table = seen(sites=[7, 3], steps=steps(4, "quiet", queued_us=50.0), synced=rows)
    table = table.get(StorageSyncs)
    assert (table.steps, table.step_us, len(table.calls)) == (4, 4 * 950.0, 3)
    first, second = table.lines()
    assert (first.site.line, first.us_per_step, first.pattern.seen) == (3, 25.0, (1,))
    assert (second.site.line, second.us_per_step, second.pattern.seen) == (7, 200.0, (0, 2))
    assert (second.name, second.number, second.per_step) == ("os.fsync", 3, 0.75)


def test_the_price_is_over_all_steps(seen):
    rows = [sync(step, us=100.0) for step in range(6)]
    (line,) = seen(sites=[7], steps=steps(6, "quiet"), synced=rows).get(StorageSyncs).lines()
    assert (line.price.value, line.price.low, line.price.high) == pytest.approx((100, 100, 100))


def test_the_call_of_the_step_that_most_came_from(seen):
    rows = [sync(0, stack=[1, 0], n=2), sync(1, stack=[2, 0]), sync(2, stack=[2, 0], n=4)]
    kind = {"kind": "callable"}
    evidence = seen(sites=[3, 8, 9], steps=steps(4, "quiet"), synced=rows, manifest=kind)
    (line,) = evidence.get(StorageSyncs).lines()
    assert (line.site.line, line.called.line) == (3, 9)
