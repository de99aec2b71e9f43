"""Loops over pieces of a tensor: averages over the steps that had them, and which are short."""

from __future__ import annotations

import pytest
from auditor.rules.kern.loops import IndexingLoop, IndexingLoops

PASSES = {"passes": [{"name": "numbers", "steps": 2}, {"name": "loud", "steps": 9}]}


def row(step, at=0, op="select", n=10, operators=30, every=100, elements=4):
    counts = {"n": n, "operators": operators, "all": every, "elements": elements}
    return {"pass": "numbers", "step": step, "at": at, "op": op, **counts}


def test_a_line_is_averaged_over_its_steps(seen):
    rows = [row(0), row(1, n=20, operators=50, elements=7), row(0, at=1, n=1, operators=2)]
    table = seen(sites=[3, 4], manifest=PASSES, piecewise=rows).get(IndexingLoops)
    assert table.steps == 2
    first, second = table.loops
    assert (first.site.line, first.op, first.turns, first.operators) == (3, "select", 15.0, 40.0)
    assert (first.share, first.elements, first.steps) == (0.4, 7, 2)
    assert (second.site.line, second.turns, second.share, second.steps) == (4, 1.0, 0.02, 1)


@pytest.mark.parametrize(
    ("via", "own"),
    [
        ("", True),
        ("torch/functional.py:split", True),
        ("torch/nn/functional.py:pad", True),
        ("torch/_tensor.py:__iter__", True),
        ("torch/optim/adam.py:step", False),
    ],
)
def test_loops_of_modules_and_optimizers_are_their_own(seen, via, own):
    sites = [(3, {"via": via})] if via else [3]
    table = seen(sites=sites, manifest=PASSES, piecewise=[row(0)]).get(IndexingLoops)
    assert bool(table.loops) is own


def test_a_step_without_operators_has_no_share(seen):
    (loop,) = seen(sites=[3], piecewise=[row(0, operators=0, every=0)]).get(IndexingLoops).loops
    assert loop.share == 0.0


@pytest.mark.parametrize(
    ("turns", "operators", "steps", "short"),
    [
        (10.0, 30.0, 2, True),
        (10.0, 30.5, 2, False),
        (10.0, 10.0, 1, False),
        (19.0, 76.0, 2, False),
        (20.0, 80.0, 2, True),
        (20.0, 80.5, 2, False),
    ],
)
def test_short_loops_have_few_operators_a_turn_on_every_step(turns, operators, steps, short):
    loop = IndexingLoop(None, "select", turns, operators, 0.5, 1, steps)
    assert list(IndexingLoops(2, (loop,)).short(3, 20, 4)) == ([loop] if short else [])


def test_without_a_list_of_passes_no_step_was_watched(seen):
    assert seen(piecewise=[]).get(IndexingLoops).steps == 0


LOOPED = "def f(xs):\n    for x in xs:\n        y = g(x)\n    z = [g(x) for x in xs]\n    g(xs)\n"


@pytest.mark.parametrize(
    ("lines", "more", "site", "head"),
    [
        ([3], {}, 3, 2),
        ([4], {}, 4, None),  # a loop on the line itself
        ([5], {}, 5, None),  # no loop
        ([5, 3], {"cut": 1}, 3, 2),
        ([3, 4], {"cut": 1}, 3, 2),
        ([5, 4], {"cut": 1}, 4, None),
        ([5, 1], {"cut": 1}, 5, None),
    ],
)
def test_the_head_of_a_loop(seen, lines, more, site, head):
    rows = [{**row(0), **more}]
    (loop,) = (
        seen(text=LOOPED, sites=lines, manifest=PASSES, piecewise=rows).get(IndexingLoops).loops
    )
    assert loop.site.line == site
    assert (loop.head and loop.head.line) == head
    assert loop.head is None or loop.head.file == "trainer.py"


def test_what_a_module_cut_is_own(seen):
    sites = [(3, {"via": "torch/optim/adam.py:step"}), 4]
    rows = [{**row(0), "cut": 1}]
    assert seen(sites=sites, manifest=PASSES, piecewise=rows).get(IndexingLoops).loops
