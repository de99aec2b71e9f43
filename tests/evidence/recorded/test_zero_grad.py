"""Clearing gradients with zeros: which lines, on which steps, how long."""

from __future__ import annotations

import pytest

from auditor.evidence import ZeroGrads
from auditor.evidence.recorded.zero_grad import FILLS, ZeroGrad, Zeroing
from auditor.model import Site
from tests.evidence.recorded.rows import loud, quiet, steps


def call(step, at=0, **more):
    return loud(step, **{"call": "zero_grad", "at": at, "n": 1, "set_to_none": False, **more})


def test_lines_that_fill_with_zeros(seen):
    rows = [
        call(1, at=1, n=2, us=30.0),
        call(0, n=3, us=10.0),
        call(2, us=2.0, owner="Module"),
        call(1, set_to_none=True, n=90),
        call(3, n=90),  # did not complete
        {**call(0, n=90), "pass": "quiet"},
    ]
    table = seen(sites=[8, 5], steps=steps(3), optimizer=rows).get(ZeroGrads)
    assert (table.steps, len(table.calls)) == (3, 5)
    first, second = table.zeroing()
    assert (first.site.line, first.per_step, first.us_per_step) == (5, 2 / 3, 10.0)
    assert (second.site.line, second.per_step, second.us_per_step) == (8, 4 / 3, 4.0)
    assert second.pattern.seen == (0, 2)
    assert [each.owner for each in second.calls] == ["Optimizer", "Module"]


def test_a_call_that_does_not_say_sets_to_none(seen):
    rows = [loud(0, call="zero_grad", at=0, n=1), quiet(0, call="zero_grad", at=0, n=1)]
    table = seen(sites=[8], steps=steps(1), optimizer=rows).get(ZeroGrads)
    assert table.calls[0].set_to_none and list(table.zeroing()) == []


@pytest.mark.parametrize(
    ("owners", "by_hand"), [(("Optimizer",), False), (("Module", "Tensor"), True)]
)
def test_what_is_said_of_a_line(owners, by_hand):
    site = Site("trainer.py", 1)
    calls = tuple(ZeroGrad(site, 0, owner=owner) for owner in owners)
    assert (Zeroing(site, calls, 1).said != FILLS) is by_hand
    nothing = Zeroing(site, (), 0)
    assert (nothing.per_step, nothing.us_per_step) == (0.0, 0.0)
