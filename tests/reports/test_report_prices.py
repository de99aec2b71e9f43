"""Prices: intervals, what is not proven, what re-runs settled, a busy machine: on every page."""

from dataclasses import replace

import pytest
from auditor.reports import github, headline, html, junit, markdown, sarif, terminal

from auditor.model.sections import Verification, Verified
from tests.reports import golden_report as golden

FORMATS = {
    "terminal": terminal.Terminal(width=100),
    "html": html.Html(),
    "markdown": markdown.Markdown(),
    "github": github.Github(),
    "junit": junit.Junit(),
    "sarif": sarif.Sarif(),
}


def _priced(us, low, high, **more):
    return replace(
        golden.rich_report().findings[0],
        verified=None,
        lost_us_per_step=us,
        lost_us_per_step_low=low,
        lost_us_per_step_high=high,
        **more,
    )


def _report(*findings, **more):
    return replace(golden.rich_report(), findings=findings, **more)


PROVEN, UNPROVEN = _priced(8_412.0, 8_100.0, 8_700.0), _priced(30_500.0, -2_900.0, 64_000.0)


def _shown(report, name):
    return " ".join(
        FORMATS[name].render(report).replace("&#91;", "[").replace("&#93;", "]").split()
    )


def test_what_is_not_proven_is_in_no_sum_and_no_headline():
    both = _report(PROVEN, UNPROVEN)
    ((_, sum_),) = headline.recoverable(both)
    assert (sum_.us, len(sum_.findings)) == (8_412.0, 1)
    assert headline.headline(_report(UNPROVEN)) == ("found 1 warning; no time saving is proven",)
    assert "30.5 ms" not in " ".join(headline.headline(both))
    assert "no time saving is proven" in _shown(_report(UNPROVEN), "html")


@pytest.mark.parametrize(("low", "proven"), [(0.1, True), (0.0, False), (-0.1, False)])
def test_an_interval_that_reaches_zero_proves_nothing(low, proven):  # noqa: FBT001 - a column
    assert (_priced(5.0, low, 10.0).proven_us is not None) is proven


# -- what re-runs change ---------------------------------------------------------------------------


def _verified(status, *, pairs=3):
    ratio = (
        (None, None, None)
        if pairs < 3
        else {"better": (0.5, 0.4, 0.6), "worse": (1.5, 1.4, 1.6)}.get(status, (1.0, 0.98, 1.02))
    )
    after = 38_000.0 * (ratio[0] or 0.5)
    return Verified(status, 38_000.0, after, *ratio, same_result=status != "broken", pairs=pairs)


def _rerun(*statuses):
    findings = [
        replace(PROVEN, verified=_verified(status, pairs=pairs)) for status, pairs in statuses
    ]
    done = Verification(None, (), None, repeatable=True, runs=7, steps=10, seconds=9.0)
    return _report(*findings, verification=done)


@pytest.mark.parametrize(
    ("status", "pairs", "counts"),
    [
        ("better", 3, False),
        ("worse", 3, False),
        ("same", 3, False),
        ("broken", 1, False),
        ("inconclusive", 1, True),
        ("same", 1, True),
    ],
)
def test_what_re_runs_have_settled_is_not_promised_again(status, pairs, counts):  # noqa: FBT001
    assert bool(headline.recoverable(_rerun((status, pairs)))) is counts
