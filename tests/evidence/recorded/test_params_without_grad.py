"""Parameters without a gradient, by optimizer."""

from __future__ import annotations

import pytest
from auditor.rules.graph.params_without_grad import ParamsWithoutGrad

from auditor.rule import NotLooked
from tests.evidence.recorded.rows import loud, quiet

ROW = {"at": 0, "optimizer": "Adam", "parameters": 5, "n": 21, "still": []}


def test_what_an_optimizer_never_had_anything_for(seen):
    unfed = [{"name": "head.weight", "shape": [3, 2]}, {"name": "head.bias"}]
    still = [{"group": 1, "parameters": 4}]
    rows = [
        loud(9, steps=10, **{**ROW, "unfed": unfed, "still": still}),
        quiet(9, steps=10, unfed=[], **ROW),
        loud(9, steps=3, unfed=[], **{**ROW, "at": None}),
    ]
    table = seen(sites=[2], fed=rows).get(ParamsWithoutGrad)
    first, second = table.optimizers
    assert (first.optimizer, first.site.line, first.steps, first.parameters) == ("Adam", 2, 10, 5)
    assert [(each.name, each.shape) for each in first.unfed] == [
        ("head.weight", (3, 2)),
        ("head.bias", ()),
    ]
    assert (first.n, first.still) == (21, ((1, 4),))
    assert (second.site, second.unfed, second.still) == (None, (), ())
    assert list(table.long_enough(4)) == [first]
    assert list(table.long_enough(3)) == [first, second]


def test_no_optimizer_stepped(seen):
    with pytest.raises(NotLooked, match="no optimizer stepped"):
        seen(steps=[]).get(ParamsWithoutGrad)
