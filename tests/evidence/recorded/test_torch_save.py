"""Saves of the quiet pass, by line, with what they cost a step."""

from __future__ import annotations

import pytest

from auditor.evidence.recorded.torch_save import Saves
from tests.evidence.recorded.rows import quiet, steps


def save(step, at=0, us=200.0, path="last.pt", size=5, *, replaced=False):
    return quiet(step, at=at, us=us, path=path, replaced=replaced, bytes=size)


def test_saves_of_completed_steps_by_line(seen):
    rows = [
        save(1, at=1, us=100.0),
        save(0, us=300.0, replaced=True),
        save(2, us=500.0, path=None, size=None),
        save(4, us=9000.0),  # the step did not complete
    ]
    table = seen(sites=[7, 3], steps=steps(4, "quiet", queued_us=50.0), saves=rows).get(Saves)
    assert (table.steps, table.step_us, len(table.each)) == (4, 4 * 950.0, 3)
    by_file = {line.site.line: line for line in table.lines()}
    assert list(by_file) == [3, 7]
    assert (by_file[3].us, by_file[3].per_step, by_file[3].pattern.seen) == (100.0, 0.25, (1,))
    assert (by_file[7].us, by_file[7].per_step, by_file[7].pattern.seen) == (800.0, 0.5, (0, 2))
    assert [(each.path, each.replaced, each.size) for each in by_file[7].calls] == [
        ("last.pt", True, 5),
        (None, False, None),
    ]


@pytest.mark.parametrize("number", [2, 3])
def test_a_price_needs_three_saves_and_is_shared_over_all_steps(seen, number):
    rows = [save(step, us=100.0) for step in range(number)]
    (line,) = seen(sites=[7], steps=steps(6, "quiet"), saves=rows).get(Saves).lines()
    if number < 3:
        assert line.price is None
    else:
        assert (line.price.value, line.price.low, line.price.high) == pytest.approx((50, 50, 50))


def test_the_interval_of_uneven_saves_lies_around_their_mean(seen):
    rows = [save(step, us=us) for step, us in enumerate((100.0, 200.0, 300.0))]
    (line,) = seen(sites=[7], steps=steps(6, "quiet"), saves=rows).get(Saves).lines()
    price = line.price
    assert price.value == pytest.approx(100.0)
    assert price.low < 50.0 < 150.0 < price.high
    assert price.low * price.high == pytest.approx(price.value**2)


LOOPED = """
def write(state):
    save(state)

def train():
    for batch in batches:
        learn(batch)
        write(state)
    write(state)

for epoch in range(3):
    train()
"""


@pytest.mark.parametrize(
    ("kind", "stack", "line"),
    [
        ("script", [2, 1, 0], 8),  # the innermost loop, not that over the epochs
        ("script", [2, 3, 0], 12),  # behind the inner loop: it is the epochs' call
        ("script", [3, 0], None),
        ("script", [1], None),  # the loop's line saves by itself
        ("callable", [3, 1, 0], 9),  # the step's own line, whatever loops lie below
        ("callable", [0], None),
        ("script", [], None),  # of an earlier version
    ],
)
def test_the_call_in_the_training_loop(seen, kind, stack, line):
    row = {**save(0, at=stack[-1] if stack else 0), "stack": stack}
    rows = [row, {**row, "step": 1}]
    evidence = seen(
        LOOPED, sites=[3, 8, 12, 9], steps=steps(4, "quiet"), saves=rows, manifest={"kind": kind}
    )
    (found,) = evidence.get(Saves).lines()
    assert (found.called.line if found.called is not None else None) == line


def test_the_call_that_most_saves_came_from(seen):
    rows = [{**save(n, at=0), "stack": [at, 0]} for n, at in enumerate((1, 2, 2))]
    sites, kind = [3, 8, 9], {"kind": "callable"}
    (found,) = (
        seen(LOOPED, sites=sites, steps=steps(4, "quiet"), saves=rows, manifest=kind)
        .get(Saves)
        .lines()
    )
    assert found.called.line == 9
