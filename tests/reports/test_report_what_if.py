"""What each fix saves: the table and the sentences in the page, the terminal and report.json."""

from dataclasses import replace

from auditor.reports import headline, what_ifs
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


def test_the_headline_is_what_they_buy_together():
    ((_, part),) = headline.recoverable(report())
    assert (part.us, part.alone_us, len(part.findings)) == (2000.0, 500.0, 2)
    (words,) = headline.headline(report())
    assert words.startswith("estimated: fixing 2 findings together could save 2 ms ")
    assert words.endswith("(500 us one by one: together they save more)")


def test_prices_that_come_to_more_than_all_together_overlap():
    fixes = (FIXES[0], replace(FIXES[1], alone_us=500.0, after_us=100.0))
    found = tuple(replace(each, lost_us_per_step=500.0) for each in FOUND)
    less = replace(report(replace(WHAT_IF, joint_us=600.0, alone_us=1000.0, fixes=fixes)))
    (words,) = headline.headline(replace(less, findings=found))
    assert words.endswith("(1 ms one by one: they overlap)")
    assert what_ifs.sentences(less)[0].startswith(
        "Single prices sum to 1 ms per step; all fixes together save less"
    )


def test_prices_that_no_replay_gives_are_added():
    other = replace(FOUND[0], code="KERN009", key="three", message="x", lost_us_per_step=300.0)
    ((_, part),) = headline.recoverable(report(more=(other,)))
    assert (part.us, part.alone_us, len(part.findings)) == (2300.0, 800.0, 3)


def test_prices_that_add_up_are_not_said_to_overlap():
    fixes = (replace(FIXES[0]), replace(FIXES[1], after_us=0.0))
    even = replace(WHAT_IF, joint_us=500.0, fixes=fixes)
    ((_, part),) = headline.recoverable(report(even))
    assert part.alone_us is None
    assert not any("overlap" in each for each in what_ifs.sentences(report(even)))


def test_a_strangers_words_are_escaped():
    evil = replace(FIXES[0], code="<b>", message="<script>x</script>", place="<i>\x1b[31m")
    made = report(replace(WHAT_IF, fixes=(evil, *FIXES)))
    assert "<script>x" not in renderer("html").render(made)
    assert "\x1b" not in Terminal().render(made)
