"""Clipping in vain: at both sides of the share and of the fewest steps."""

from __future__ import annotations

import pytest
from auditor.rules.opt.misplaced_clipping import InVain, MisplacedClipping

from auditor.model import Site
from tests.evidence.recorded.rows import loud

SITE = Site("train.py", 3)


def test_each_line_has_its_optimizer(seen):
    row = {"optimizer": "SGD", "steps": 9}
    rows = [loud(8, at=0, n=8, absent=True, **row), loud(8, at=1, n=7, absent=False, **row)]
    first, second = seen(sites=[4, 5], clippings=rows).get(MisplacedClipping).lines
    assert (first.site.line, first.n, first.absent) == (4, 8, True)
    assert (second.site.line, second.n, second.absent) == (5, 7, False)
    assert (first.optimizer, first.steps) == ("SGD", 9)


@pytest.mark.parametrize(
    ("steps", "n", "said"), [(10, 5, True), (10, 4, False), (3, 3, True), (2, 2, False)]
)
def test_usual_is_a_share_of_the_steps_and_so_many(steps, n, said):
    table = MisplacedClipping((InVain(SITE, "SGD", steps, n, absent=True),))
    assert len(list(table.usual(0.5, 3))) == said


def test_a_line_is_told_once():
    table = MisplacedClipping(
        tuple(InVain(SITE, name, 9, 9, absent=True) for name in ("SGD", "Adam"))
    )
    assert [each.optimizer for each in table.usual(0.5, 3)] == ["SGD"]
