"""Peaks with one thing changed: compared only where unchanged steps agree."""

from __future__ import annotations

import pytest
from auditor.rules.mem.peak_experiments import Change, PeakExperiments

from auditor.rule import NotLooked
from tests.evidence.recorded.rows import loud


def row(peak, what="", changed=0, at=None):
    return loud(0, at=at, what=what, changed=changed, peak_allocated=peak)


def test_the_lowest_unchanged_peak_is_the_base_and_idle_changes_are_left_out(seen):
    rows = [
        row(1000),
        row(1005),
        row(700, "gradients", 3),
        row(600, "foreach", 0),
        row(650, "foreach", 1, at=0),
    ]
    table = seen(sites=[6], leaner=rows).get(PeakExperiments)
    assert table.peak == 1000
    assert [(each.what, each.peak, each.tensors, each.site.line) for each in table.changes] == [
        ("gradients", 700, 3, 6),
        ("foreach", 650, 1, 6),
    ]


def test_no_line_is_known_where_none_was_recorded(seen):
    (change,) = seen(leaner=[row(9), row(9), row(5, "foreach", 2)]).get(PeakExperiments).changes
    assert change.site is None


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([row(1000), row(700, "gradients", 3)], "too few steps"),
        ([], "too few steps"),
        ([row(1000), row(989)], "differ in themselves"),
    ],
    ids=["one unchanged", "none", "unchanged ones differ"],
)
def test_what_cannot_be_compared_is_not_looked_at(seen, rows, why):
    with pytest.raises(NotLooked, match=why):
        seen(leaner=rows).get(PeakExperiments)


def test_a_difference_of_one_per_cent_is_the_same(seen):
    assert seen(leaner=[row(1000), row(990)]).get(PeakExperiments).peak == 990


@pytest.mark.parametrize(
    ("peak", "share", "least", "said"),
    [
        (900, 0.1, 100, True),
        (901, 0.1, 0, False),
        (901, 0.0, 100, False),
        (900, 0.0, 100, True),
        (1001, 0.0, 0, False),
    ],
)
def test_a_saving_reaches_both_borders(peak, share, least, said):
    change = Change("foreach", peak, 1, None)
    found = list(PeakExperiments(1000, (change,)).savings(share=share, least_bytes=least))
    assert found == ([(change, 1000 - peak)] if said else [])
