"""Gradient norms: which points count, and growth by fifths."""

import math

import pytest
from auditor.rules.num.backward import GradientNorms, NormSeries

from tests.evidence.recorded.rows import loud


def series(norms, first=0, apart=1):
    return NormSeries(None, tuple((first + apart * n, norm) for n, norm in enumerate(norms)))


def test_one_series_for_each_optimizer_in_the_order_of_steps(seen):
    def row(step, optimizer, norm, at=None, *, clipped=False):
        more = {"optimizer": optimizer, "at": at, "norm": norm, "clipped": clipped}
        return loud(step, global_step=step, **more)

    rows = [
        row(3, 1, "inf", clipped=True),
        row(2, 1, 4.0, at=0),
        row(2, 0, 1.5),
        row(4, 1, 9.0, at=1),
    ]
    first, second = seen(sites=[6, 7], norms=rows).get(GradientNorms).series
    assert (first.points, first.site, first.clipped) == (((2, 1.5),), None, False)
    assert second.points == ((2, 4.0), (3, math.inf), (4, 9.0))
    assert (second.site.line, second.clipped) == (6, True)
    assert (first.finite, second.finite) == (((2, 1.5),), ((2, 4.0),))


@pytest.mark.parametrize(
    ("norms", "grown"),
    [
        ([1.0] * 10, True),
        ([1.0] * 9, False),
        ([1.0] * 10 + [math.nan] + [1.0] * 10, True),
        ([1.0] * 18 + [0.0] * 2, True),  # nine in ten are not zero
        ([1.0] * 17 + [0.0] * 2, False),
        ([1.0] * 9 + [math.inf], False),
        ([], False),
    ],
)
def test_growth_needs_ten_norms_above_zero(norms, grown):
    assert (series(norms).growth is not None) is grown


def test_growth_by_medians_of_fifths():
    """Twenty norms, a power of ten every ten steps: fifths of four, the middle one from the ninth."""
    growth = series([10 ** (n / 10) for n in range(20)], first=100).growth
    assert growth.steps == 19
    assert (growth.before, growth.after) == pytest.approx((10**0.15, 10**1.75))
    assert growth.decades == pytest.approx(1.6)
    assert growth.late_decades == pytest.approx(1.75 - 0.95)
