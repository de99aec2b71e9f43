"""Optimizers whose gradients pile up: always means each step but the first that is watched."""

from __future__ import annotations

import pytest
from auditor.rules.opt.stale_grads import AccumulatedOver, StaleGrads

from tests.evidence.recorded.rows import loud


def test_each_optimizer_has_its_lines(seen):
    row = {"optimizer": "SGD", "steps": 9, "piled": 8}
    rows = [loud(8, at=0, backward_at=1, **row), loud(8, at=None, backward_at=None, **row)]
    first, second = seen(sites=[4, 5], uncleared=rows).get(StaleGrads).optimizers
    assert (first.site.line, first.backward.line) == (4, 5)
    assert (second.site, second.backward) == (None, None)
    assert (first.optimizer, first.steps, first.piled) == ("SGD", 9, 8)


@pytest.mark.parametrize(
    ("steps", "piled", "said"),
    [(5, 4, True), (4, 3, False), (5, 3, False), (5, 5, False), (9, 8, True)],
)
def test_always_is_every_step_but_the_first_of_more_than_the_fewest(steps, piled, said):
    each = AccumulatedOver("SGD", None, None, steps, piled)
    assert list(StaleGrads((each,)).always(4)) == ([each] if said else [])
