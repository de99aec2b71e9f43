"""Graphs built for nothing, and cycles of create_graph."""

from __future__ import annotations

from dataclasses import replace

import pytest
from auditor.rules.graph.unused_graphs import (
    CreateGraphCycle,
    CreateGraphCycles,
    UnusedGraph,
    UnusedGraphs,
)

from auditor.model import Site
from tests.evidence.recorded.rows import loud, quiet, steps

SITE = Site("trainer.py", 2)
ROW = {"at": 0, "module": "Net", "n": 4, "steps": 3, "walked": 0, "held": False}


def test_rows_of_the_loud_pass(seen):
    rows = [
        loud(5, **ROW, saved_bytes=None),
        loud(5, **{**ROW, "walked": 2, "held": True}, mode="train", saved_bytes=64),
        quiet(5, **ROW, saved_bytes=None),
    ]
    first, second = seen(sites=[2], evals=rows).get(UnusedGraphs).places
    assert (first.site.line, first.module, first.calls, first.steps) == (2, "Net", 4, 3)
    assert (first.walked, first.held, first.saved_bytes, first.mode) == (0, False, None, "eval")
    assert (second.walked, second.held, second.saved_bytes, second.mode) == (2, True, 64, "train")


@pytest.mark.parametrize(("outer", "line"), [(None, None), (1, 7)])
def test_the_line_around_it(seen, outer, line):
    row = loud(5, **ROW, saved_bytes=None, outer=outer)
    (place,) = seen(sites=[2, 7], evals=[row]).get(UnusedGraphs).places
    assert (place.outer.line if place.outer else None) == line


@pytest.mark.parametrize(
    ("change", "said"),
    [({}, True), ({"calls": 3}, False), ({"walked": 1}, False), ({"held": True}, False)],
    ids=str,
)
def test_for_nothing(change, said):
    place = replace(UnusedGraph(SITE, "Net", 4, 3), **change)
    assert list(UnusedGraphs((place,)).for_nothing(4)) == ([place] if said else [])


def test_cycles_by_line_in_the_order_of_steps(seen):
    rows = [
        loud(2, at=1, leaves=3, held_bytes=300),
        loud(1, at=1, leaves=2, held_bytes=100),
        loud(0, at=0, leaves=1, held_bytes=10),
        loud(1, at=0, leaves=1, held_bytes=None),
        quiet(0, at=0, leaves=9, held_bytes=9),
    ]
    table = seen(sites=[7, 5], steps=steps(4), cycles=rows).get(CreateGraphCycles)
    seven, five = table.cycles
    assert (table.steps, seven.site.line, seven.steps, seven.held_bytes) == (4, 7, (0, 1), ())
    assert (five.site.line, five.steps, five.leaves) == (5, (1, 2), (2, 3))
    assert (five.held_bytes, five.bytes_per_step) == ((100, 300), 200)
    assert list(table.lasting(0.5)) == [seven, five]
    assert list(table.lasting(0.51)) == []


@pytest.mark.parametrize(
    ("held", "growth"),
    [((), None), ((5,), None), ((5, 5), None), ((9, 5), None), ((5, 6), 1), ((0, 9, 20), 10)],
)
def test_growth_of_a_cycle(held, growth):
    assert CreateGraphCycle(SITE, (), (), held).bytes_per_step == growth
