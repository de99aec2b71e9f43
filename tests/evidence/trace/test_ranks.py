"""Ranks side by side: what the late one does longer, and the extremes of each column."""

import pytest

from auditor.evidence.trace.ranks import Ranks
from auditor.model import Rank


def rank(number, step=100.0, compute=50.0, loader=0.0, wait=0.0, steps=5):
    facts = {"rank": number, "file": "", "host": "", "device": "", "communication_us": 0.0}
    facts |= {"peak_bytes": None, "steps": steps, "step_us": step, "busy_us": 40.0}
    facts |= {"compute_us": compute, "exposed_us": number, "loader_us": loader, "wait_us": wait}
    return Rank(**facts)


def test_medians_and_minima():
    table = Ranks((rank(0, 90.0), rank(1, 100.0, steps=3), rank(2, 120.0)), waited_us=25.0)
    assert (table.step_us, table.waited_share, table.steps) == (100.0, 0.25, 3)
    assert (Ranks().step_us, Ranks(waited_us=5.0).waited_share, Ranks().steps) == (0.0, 0.0, 0)


@pytest.mark.parametrize(
    ("late", "waited", "excess"),
    [
        (rank(2, compute=70.0), 40.0, ("computing", 20.0)),
        (rank(2, compute=70.0), 40.1, None),
        (rank(2, compute=55.0, loader=30.0), 40.0, ("waiting for its loader", 30.0)),
        (rank(2, compute=55.0, loader=5.0, wait=21.0), 40.0, ("waiting for its device", 21.0)),
    ],
)
def test_what_explains_half_of_the_wait_is_named(late, waited, excess):
    rows = (rank(0, compute=40.0), rank(1, compute=60.0), late)
    assert Ranks(rows, late=2, waited_us=waited).excess() == excess


def test_nobody_is_late_without_a_name_or_without_others():
    assert Ranks((rank(0), rank(1)), waited_us=0.0).excess() is None
    assert Ranks((rank(0),), late=0).excess() is None


def test_facts_are_the_extremes():
    assert Ranks().facts == ()
    assert Ranks((rank(3, 90.0),)).facts[0] == ("step", "90 us")
    facts = dict(Ranks((rank(3, 110.0), rank(4, 90.0))).facts)
    assert facts["step"] == "90 us (rank 4) to 110 us (rank 3)"
    assert facts["exposed communication"] == "3 us (rank 3) to 4 us (rank 4)"
