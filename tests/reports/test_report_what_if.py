"""What each fix saves: the table and the sentences in the page, the terminal and report.json."""

from dataclasses import replace

from auditor.reports.terminal import Terminal

from auditor.judging.catalogue import renderer
from auditor.model import Finding, Severity, Site
from auditor.model.what_if import PricedFix, WhatIf
from tests.reports import golden_report as golden

SITE = Site("train.py", 12, "step", "loss.item()")
FOUND = (
    Finding(
        SITE,
        "reads a number",
        lost_us_per_step=500.0,
        basis="estimated",
        seen_on="trace",
        code="SYNC001",
        key="one",
        severity=Severity.WARNING,
    ),
    Finding(
        None,
        "waits for its loader",
        lost_us_per_step=0.0,
        basis="estimated",
        seen_on="trace",
        code="DATA007",
        key="two",
        severity=Severity.WARNING,
    ),
)
FIXES = (
    PricedFix("SYNC001", "one", "reads a number", "train.py:12", 500.0, 500.0),
    PricedFix("DATA007", "two", "waits for its loader", "", 0.0, 1500.0),
)
WHAT_IF = WhatIf(10_000.0, 10_050.0, 2000.0, 500.0, FIXES)


def report(what_if=WHAT_IF, more=()):
    return replace(golden.silent_report(), findings=(*FOUND, *more), what_if=what_if)


def test_a_strangers_words_are_escaped():
    evil = replace(FIXES[0], code="<b>", message="<script>x</script>", place="<i>\x1b[31m")
    made = report(replace(WHAT_IF, fixes=(evil, *FIXES)))
    assert "<script>x" not in renderer("html").render(made)
    assert "\x1b" not in Terminal().render(made)
