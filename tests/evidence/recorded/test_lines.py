"""Lines: which rows are judged, and what is said of a line."""

from collections.abc import Callable

import pytest

from auditor.evidence.recorded.lines import Line, Lines, TrainingLoop
from auditor.evidence.table import Evidence
from auditor.model import Site
from auditor.recordings.schema.data import SaveRow
from auditor.recordings.schema.graph import BackwardRow
from auditor.recordings.schema.sync import CallRow
from tests.evidence.recorded.rows import loud, quiet, steps

Seen = Callable[..., Evidence]


def test_lines_of_the_quiet_pass(seen: Seen) -> None:
    call = {"name": "empty_cache", "n": 1, "us": 40.0}
    rows = [
        quiet(1, at=0, **call),
        quiet(1, at=0, **{**call, "name": "synchronize", "n": 2, "us": 100.0}),
        quiet(0, at=1, **call),
        quiet(2, at=0, **{**call, "name": "memory_stats"}),
        quiet(4, at=0, **call),  # the step did not complete
        loud(0, at=0, **call),
    ]
    both = steps(4, "quiet", queued_us=50.0) + steps(2)
    table = seen(sites=[8, 5], steps=both, calls=rows).get(Lines[CallRow])
    assert (table.steps, table.pass_name, table.step_us, len(table)) == (4, "quiet", 3800.0, 4)
    first, second = table.lines(lambda call: call.name != "memory_stats")
    assert (first.site.line, first.per_step, first.pattern.seen) == (5, 0.25, (0,))
    assert (second.site.line, second.per_step, second.pattern.seen) == (8, 0.75, (1,))
    assert (second.n, second.us, second.us_per_step) == (3, 140.0, 35.0)
    assert second.facts == (("host time", "35 us per step"),)


def test_without_a_quiet_step_the_loud_pass_has_counts_and_no_price(seen: Seen) -> None:
    rows = [loud(0, at=0, name="synchronize", n=3, us=9.0)]
    (line,) = seen(sites=[8], steps=steps(6), calls=rows).get(Lines[CallRow]).lines()
    assert (line.pass_name, line.steps, line.per_step, line.price) == ("loud", 6, 0.5, None)
    assert line.facts == ()


def test_what_is_counted_with_instruments_is_judged_by_that_pass(seen: Seen) -> None:
    rows = [loud(step, at=0, n=1, retain=True) for step in range(3)]
    both = steps(4, "quiet") + steps(3)
    (line,) = seen(sites=[8], steps=both, backward=rows).get(Lines[BackwardRow]).lines()
    assert (line.pass_name, str(line.pattern)) == ("loud", "3 of 3 steps")


@pytest.mark.parametrize("number", [4, 5])
def test_a_price_needs_five_steps_and_counts_those_without_a_call(number: int) -> None:
    calls = (CallRow(at=0, name="synchronize", step=1, us=50.0),) * 2
    price = Line(Site("t.py", 3), calls, number, "quiet").price
    assert (price is None) is (number < 5)
    if price is not None:
        assert price.value == 20.0
        assert price.low < 0.0 < 40.0 < price.high


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
    ("kind", "stacks", "line"),
    [
        ("script", [[2, 1, 0]], 8),  # the innermost loop, not that over the epochs
        ("script", [[2, 3, 0]], 12),  # behind the inner loop: it is the epochs' call
        ("script", [[3, 0]], None),
        ("script", [[1]], None),  # the loop's line saves by itself
        ("callable", [[3, 1, 0]], 9),  # the step's own line, whatever loops lie below
        ("callable", [[0]], None),
        ("script", [[]], None),  # of an earlier version
        ("callable", [[1, 0], [3, 0], [3, 0]], 9),  # from which most came
    ],
)
def test_the_call_in_the_loop(
    seen: Seen, kind: str, stacks: list[list[int]], line: int | None
) -> None:
    at = stacks[0][-1] if stacks[0] else 0
    facts = {"path": None, "replaced": False, "bytes": None}
    rows = [quiet(n, at=at, us=1.0, stack=stack, **facts) for n, stack in enumerate(stacks)]
    evidence = seen(
        LOOPED, sites=[3, 8, 12, 9], steps=steps(4, "quiet"), saves=rows, manifest={"kind": kind}
    )
    (found,) = evidence.get(Lines[SaveRow]).lines()
    call = evidence.get(TrainingLoop).call_of(found)
    assert (call.line if call is not None else None) == line
