"""Modules that are called several times in a row: what the source must show, and what is worth
telling.
"""

from __future__ import annotations

import pytest
from auditor.rules.kern.kern008_forwards_in_row import ForwardsInRow

TEXT = """
a = net(x)
b = net(y)
c = net(z)
d = net(c)
"""


def table(seen, lines=(0, 1, 2), steps=(0, 1, 2)):
    rows = [
        {"pass": "numbers", "step": step, "lines": list(lines), "module": "Net", "n": 3}
        | {"elements": 100 + step, "us": 50.0 * (step + 1), "step_us": 1000.0}
        for step in steps
    ]
    passes = [{"name": "numbers", "steps": 3}]
    return seen(TEXT, sites=[2, 3, 4, 5], forwards=rows, manifest={"passes": passes}).get(
        ForwardsInRow
    )


def test_the_middle_step_is_told(seen):
    (each,) = table(seen).rows
    assert [site.line for site in each.sites] == [2, 3, 4]
    assert (each.module, each.elements, each.share, each.steps) == ("Net", 102, 0.1, 3)


def test_calls_that_need_one_another_are_left_out(seen):
    assert table(seen, lines=(1, 2, 3)).rows == ()


@pytest.mark.parametrize(
    ("share", "elements", "steps", "found"),
    [
        (0.1, 102, (0, 1, 2), 1),
        (0.11, 102, (0, 1, 2), 0),
        (0.1, 101, (0, 1, 2), 0),
        (0.05, 102, (0, 1), 0),
    ],
)
def test_what_is_worth_telling(seen, share, elements, steps, found):
    assert len(list(table(seen, steps=steps).worth(share, elements))) == found
