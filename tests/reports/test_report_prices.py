"""Prices with their intervals, what is not proven, what re-runs have settled, and a busy machine:
the same on every page.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
from auditor.reports import (
    as_json,
    costs,
    github,
    html,
    junit,
    markdown,
    sarif,
    schema,
    summary,
    terminal,
    verified,
)

from auditor.model import Finding, Report
from auditor.model.verification import Status, Verification, Verified
from tests.reports import golden_report as golden

CAUTION = "the machine was busy (steps waited 38% of their time for a processor): audit again"
FORMATS = {
    "terminal": terminal.Terminal(width=100),
    "html": html.Html(),
    "markdown": markdown.Markdown(),
    "github": github.Github(),
    "junit": junit.Junit(),
    "sarif": sarif.Sarif(),
}


def _priced(us: float, low: float, high: float, **more: Any) -> Finding:
    return replace(
        golden.rich_report().findings[0],
        verified=None,
        lost_us_per_step=us,
        lost_us_per_step_low=low,
        lost_us_per_step_high=high,
        **more,
    )


def _report(*findings: Finding, **more: Any) -> Report:
    return replace(golden.rich_report(), findings=findings, **more)


PROVEN, UNPROVEN = _priced(8_412.0, 8_100.0, 8_700.0), _priced(30_500.0, -2_900.0, 64_000.0)


def _shown(report: Report, name: str) -> str:
    return " ".join(
        FORMATS[name].render(report).replace("&#91;", "[").replace("&#93;", "]").split()
    )


@pytest.mark.parametrize("name", ["terminal", "markdown", "github", "junit"])
def test_a_price_stands_with_its_interval(name: str) -> None:
    assert "8.41 ms [8.1 to 8.7] / step measured" in _shown(_report(PROVEN), name)


@pytest.mark.parametrize("name", ["terminal", "markdown", "github", "junit", "html"])
def test_a_gain_whose_interval_reaches_zero_is_called_not_proven(name: str) -> None:
    shown = _shown(_report(UNPROVEN), name)
    assert "not proven" in shown
    assert "step measured" not in shown


def test_the_page_and_sarif_have_the_interval() -> None:
    assert "between 8.1 ms and 8.7 ms" in _shown(_report(PROVEN), "html")
    (one, other) = json.loads(sarif.Sarif().render(_report(PROVEN, UNPROVEN)))["runs"][0]["results"]
    properties = one["properties"]
    assert (
        properties["lostMicrosecondsPerStepLow"],
        properties["lostMicrosecondsPerStepHigh"],
    ) == (8_100.0, 8_700.0)
    assert (properties["proven"], other["properties"]["proven"]) == (True, False)


def test_where_there_is_room_for_one_number_it_is_not_an_unproven_one() -> None:
    page = _shown(_report(UNPROVEN), "html")
    contents = page[page.index('aria-label="Contents"') : page.index("<main")]
    assert "not proven" in contents and "30.5 ms" not in contents
    assert (
        costs.short(UNPROVEN)
        == json.loads(sarif.Sarif().render(_report(UNPROVEN)))["runs"][0]["results"][0][
            "properties"
        ]["cost"]
    )
    assert (costs.short(UNPROVEN), costs.short(PROVEN)) == ("not proven", "8.41 ms / step")


def test_what_is_not_proven_is_in_no_sum_and_no_headline() -> None:
    both = _report(PROVEN, UNPROVEN)
    (sum_,) = summary.recoverable(both)
    assert (sum_.us_per_step, sum_.findings) == (8_412.0, 1)
    assert summary.headline(_report(UNPROVEN)) == (
        "found 1 warning, and no price in time is proven",
    )
    assert "30.5 ms" not in " ".join(summary.headline(both))
    assert "and no price in time is proven" in _shown(_report(UNPROVEN), "html")


@pytest.mark.parametrize(("low", "proven"), [(0.1, True), (0.0, False), (-0.1, False)])
def test_an_interval_that_reaches_zero_proves_nothing(low: float, proven: bool) -> None:  # noqa: FBT001 - a column
    assert (_priced(5.0, low, 10.0).proven_us is not None) is proven


def test_json_keeps_the_intervals_and_comes_back() -> None:
    times = replace(golden.rich_report().run.step_us, low=37_000.0, high=39_500.0, queued=0.38)
    report = _report(PROVEN, UNPROVEN, cautions=(CAUTION,))
    report = replace(report, run=replace(report.run, step_us=times))
    written = as_json.Json().render(report)
    jsonschema.Draft202012Validator(schema.schema()).validate(json.loads(written))
    back = as_json.load(written)
    assert back.findings[0].lost_us_per_step_low == 8_100.0
    assert (back.cautions, back.run.step_us) == ((CAUTION,), times)
    assert "step time: median 38.2 ms [37 to 39.5]" in _shown(report, "terminal")
    assert "37 ms to 39.5 ms" in _shown(report, "html")


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_busy_machine_is_said_above_the_findings(name: str) -> None:
    report = _report(PROVEN, cautions=(CAUTION,))
    shown = _shown(report, name)
    assert "the machine was busy" in shown
    if name in ("terminal", "html", "markdown", "github"):
        first = {
            "terminal": "severity rule cost",
            "html": 'id="finding-1"',
            "markdown": "| rule |",
            "github": "title=SYNC001",
        }[name]
        assert shown.index("the machine was busy") < shown.index(first)
    assert "the machine was busy" not in _shown(_report(PROVEN), name)


# -- what re-runs change ---------------------------------------------------------------------------


def _verified(status: Status, *, pairs: int = 3) -> Verified:
    ratio = (
        (None, None, None)
        if pairs < 3
        else {"better": (0.5, 0.4, 0.6), "worse": (1.5, 1.4, 1.6)}.get(status, (1.0, 0.98, 1.02))
    )
    after = 38_000.0 * (ratio[0] or 0.5)
    return Verified(status, 38_000.0, after, *ratio, same_result=status != "broken", pairs=pairs)


def _rerun(*statuses: tuple[Status, int]) -> Report:
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
def test_what_re_runs_have_settled_is_not_promised_again(
    status: Status, pairs: int, counts: bool
) -> None:  # noqa: FBT001
    assert bool(summary.recoverable(_rerun((status, pairs)))) is counts


def test_a_broken_patch_is_dropped_from_the_headline_and_said() -> None:
    report = _rerun(("broken", 1), ("better", 3))
    said = " ".join(summary.headline(report))
    assert "19 ms per step came back" in said
    assert "could come back" not in said
    assert (
        "left out: with the patch for SYNC001 the target fails or computes something else" in said
    )
    assert "Left out: with the patch for" in _shown(report, "html")


def test_one_pair_of_runs_is_inconclusive_and_no_proof() -> None:
    report = _rerun(("inconclusive", 1))
    measured, again = summary.headline(report)
    assert measured.startswith("measured: ") and "could come back" in measured
    assert "7 runs do not tell yet whether the patch for SYNC001 helps" in again
    assert verified.line(report.findings[0]).startswith("inconclusive: ")
    for name in ("terminal", "html"):
        shown = _shown(report, name)
        assert shown.index("could come back") < shown.index("7 runs do not tell yet")
        assert "Nothing proven" not in shown
        assert "Verified:" not in shown and "verified:" not in shown


def test_where_nothing_is_better_the_headline_says_so() -> None:
    assert (
        summary.headline(_rerun(("same", 3), ("worse", 3)))[0]
        == "re-run: no patch is proven to be better, by 7 runs"
    )
    untimed = _rerun(("same", 1))
    assert not any("re-run" in said for said in summary.headline(untimed))
    assert verified.line(untimed.findings[0]).startswith("checked, not timed")
    assert verified.proof(_verified("same", pairs=1)).words.startswith("Checked in the rehearsal")


def test_all_together_with_too_few_runs_is_no_headline() -> None:
    report = _rerun(("better", 3))
    assert report.verification is not None
    few = replace(
        report,
        verification=replace(report.verification, together=_verified("inconclusive", pairs=3)),
    )
    assert verified.headline(few) == ""
    assert "19 ms per step came back" in summary.headline(few)[0]
