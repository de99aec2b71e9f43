"""What re-runs measured reads the same on every page: the headline, each finding's line, the noise
floor, what was left out.
"""

from __future__ import annotations

import json
from dataclasses import replace

import jsonschema
import pytest
from auditor.reports import as_json, html, schema, terminal, verified

from auditor.model import Report
from auditor.model.verification import Verification, Verified
from tests.reports import golden_report as golden

BETTER = Verified(
    "better",
    38_240.0,
    20_900.0,
    0.546,
    0.532,
    0.559,
    1000 << 20,
    590 << 20,
    True,
    5,
    4.0,
    1.0,
    "bit-identical",
)
UNTIMED = Verified(
    "same", None, None, None, None, None, None, None, True, 1, 4.0, 4.0, "checked in the rehearsal"
)
BROKEN = Verified(
    "broken",
    10.0,
    9.0,
    None,
    None,
    None,
    same_result=False,
    pairs=1,
    note="loss 2 is 0.6 instead of 0.5",
)
SUMMARY = Verification(
    BETTER, ("SYNC001", "GRAPH001"), (0.98, 1.03), True, 23, 14, 117.0, ("GRAPH002: left out",)
)


@pytest.fixture
def report() -> Report:
    whole = golden.rich_report()
    measured = [BETTER, UNTIMED, BROKEN]
    findings = [
        replace(finding, verified=each)
        for finding, each in zip(whole.findings, measured, strict=False)
    ]
    return replace(whole, findings=(*findings, *whole.findings[3:]), verification=SUMMARY)


def test_json_keeps_to_its_schema_and_comes_back(report: Report) -> None:
    written = as_json.Json().render(report)
    jsonschema.Draft202012Validator(schema.schema()).validate(json.loads(written))
    back = as_json.load(written)
    assert back.verification == SUMMARY
    assert [finding.verified for finding in back.findings[:3]] == [BETTER, UNTIMED, BROKEN]


def test_the_headline_is_what_was_measured(report: Report) -> None:
    said = (
        "verified: 1.83x faster [1.79-1.88], 41% less memory, same losses with the patches for "
        "SYNC001, GRAPH001"
    )
    assert verified.headline(report) == said
    assert said in " ".join(terminal.Terminal(width=80).render(report).split())
    page = html.Html().render(report)
    assert "1.83x faster [1.79-1.88]" in page
    assert "41% less memory, same losses" in page


@pytest.mark.parametrize("together", [None, BROKEN, UNTIMED])
def test_without_a_measured_whole_there_is_no_such_headline(
    report: Report, together: Verified | None
) -> None:
    assert (
        verified.headline(replace(report, verification=replace(SUMMARY, together=together))) == ""
    )


def test_each_finding_says_its_own_and_nothing_that_was_not_measured(report: Report) -> None:
    better, untimed, broken = (verified.line(finding) for finding in report.findings[:3])
    assert better.startswith(
        "verified better: 1.83x faster [1.79-1.88], 5 pairs of runs; peak memory 1,000 MiB before"
    )
    assert "host syncs per step 4 before, 1 after" in better
    assert "faster" not in untimed
    assert "checked in the rehearsal" in untimed
    assert broken.startswith(
        "patch left out: the training result differs; loss 2 is 0.6 instead of 0.5"
    )
    assert verified.line(report.findings[3]) == ""


def test_how_it_was_verified_is_said_everywhere(report: Report) -> None:
    for shown in (terminal.Terminal(width=80).render(report), html.Html().render(report)):
        words = " ".join(shown.split())
        assert "verified by 23 runs of 14 steps in 117 s" in words
        assert "0.980 to 1.030" in words
        assert "GRAPH002: left out" in words


def test_no_bars_where_no_time_was_measured() -> None:
    bars = verified.proof(UNTIMED)
    assert (bars.before, bars.after) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.95, 1.04, "no difference in step time proven [0.96-1.05x]"),
        (1.1, 1.3, "1.20x slower [1.10-1.30]"),
    ],
)
def test_no_difference_and_slower_are_said_as_such(low: float, high: float, said: str) -> None:
    assert verified.proof(
        replace(BETTER, ratio=(low + high) / 2, ratio_low=low, ratio_high=high)
    ).detail.startswith(said)
