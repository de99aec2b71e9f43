"""The search for the largest batch: how far it jumps, when it ends, and what is told without it."""

import pytest

from auditor.extensions.plan.fitting import Point
from auditor.extensions.plan.planning import largest_batch


def at(peak, batch):
    held = round(peak(batch))
    return Point(batch, {"step": held}, held, held)


def searched(peak, usable, refuse=lambda batch: None, start=(1, 2)):
    asked = []

    def rehearse(batch):
        asked.append(batch)
        return refuse(batch) or at(peak, batch)

    return largest_batch([at(peak, batch) for batch in start], usable, rehearse), asked


def line(batch):
    return 100 + 10 * batch


@pytest.mark.parametrize(("usable", "batch"), [(259, 15), (260, 16), (261, 16), (339, 16)])
def test_both_sides_of_the_limit(usable, batch):
    found, _ = searched(line, usable)
    assert (found.batch, found.basis, found.more) == (batch, "rehearsed", False)


def test_a_step_up_is_found_from_above():
    """A predicted batch that does not fit is never told."""
    found, asked = searched(lambda n: line(n) + 1000 * (n > 50), 1100)
    assert asked[0] == 64 and found.batch in (48, 50, 40)
    assert found.reserved == line(found.batch)
