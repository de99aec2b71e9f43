"""Leaves that backward fed and nobody trains, and those that are trained but in no module."""

from __future__ import annotations

from dataclasses import replace

import pytest
from auditor.rules.graph.leaves_outside_optimizer import LeavesOutsideOptimizer, OutsideLeaf

from auditor.model import Site
from tests.evidence.recorded.rows import loud, quiet

LEAF = OutsideLeaf("w", None, Site("trainer.py", 5), 4, registered=True, changed=False)
ROW = {
    "name": "scale",
    "registered": False,
    "optimized": True,
    "shape": [2, 3],
    "grad_bytes": 24,
    "fed": 4,
    "changed": None,
    "touched": 0,
    "asked": False,
    "beside": 2,
}


def test_rows_of_the_loud_pass(seen, home):
    stored = {"file": str(home / "trainer.py"), "function": "step", "line": 9}
    rows = [
        loud(5, **{**ROW, **stored, "at": 0}),
        loud(5, **{**ROW, "touched": 3, "file": str(home / "trainer.py")}),
        loud(5, **{**ROW, "asked": True, "line": 9}),
        quiet(5, **ROW),
    ]
    table = seen(sites=[6], strays=rows).get(LeavesOutsideOptimizer)
    first, second, third = table.tensors
    assert (first.name, first.made.line, first.backward.line, first.fed) == ("scale", 9, 6, 4)
    assert (first.shape, first.registered, first.optimized) == ((2, 3), False, True)
    assert (first.changed, first.known, first.grad_bytes, first.beside) == (None, False, 24, 2)
    assert (second.made, second.backward, second.known) == (None, None, True)
    assert (third.made, third.known) == (None, True)
    assert list(table.unregistered(4)) == list(table.tensors)
    assert list(table.unregistered(5)) == []


@pytest.mark.parametrize(
    ("change", "forgotten"),
    [
        ({}, True),
        ({"fed": 3}, False),
        ({"fed": 5}, True),
        ({"optimized": True}, False),
        ({"changed": True}, False),
        ({"changed": None}, False),
        ({"registered": False}, False),
    ],
    ids=str,
)
def test_a_forgotten_parameter(change, forgotten):
    leaf = replace(LEAF, **change)
    found = list(LeavesOutsideOptimizer((leaf,)).forgotten_parameters(4))
    assert found == ([(leaf,)] if forgotten else [])


@pytest.mark.parametrize(
    ("change", "forgotten"),
    [
        ({}, True),
        ({"registered": True}, False),
        ({"known": True}, False),
        ({"fed": 3}, False),
        ({"optimized": True}, False),
        ({"changed": None}, False),
    ],
    ids=str,
)
def test_a_forgotten_tensor(change, forgotten):
    leaf = replace(LEAF, **{"registered": False, **change})
    found = list(LeavesOutsideOptimizer((leaf,)).forgotten_tensors(4))
    assert found == ([leaf] if forgotten else [])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, True),
        ({"optimized": False}, False),
        ({"registered": True}, False),
        ({"beside": 0}, False),
        ({"fed": 3}, False),
        ({"changed": True}, True),
    ],
    ids=str,
)
def test_an_unregistered_tensor(change, said):
    leaf = replace(LEAF, **{"registered": False, "optimized": True, "beside": 1, **change})
    assert list(LeavesOutsideOptimizer((leaf,)).unregistered(4)) == ([leaf] if said else [])


def test_parameters_come_together_by_the_line_of_their_backward():
    other = replace(LEAF, name="v", backward=Site("trainer.py", 8))
    table = LeavesOutsideOptimizer((LEAF, other, replace(LEAF, name="u")))
    groups = [[leaf.name for leaf in group] for group in table.forgotten_parameters(1)]
    assert sorted(map(sorted, groups)) == [["u", "w"], ["v"]]
