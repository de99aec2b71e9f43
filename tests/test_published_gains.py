"""The verdicts of the table of published gains (docs/real-defects.md), and what it is made of."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.real_defects import gains
from benchmarks.real_defects.__main__ import page
from benchmarks.real_defects.pairs import Pair, Side

PROGRAMS = Path(gains.__file__).with_name("programs")
PUBLISHED = {
    path.parent.name: truth
    for path in sorted(PROGRAMS.glob("*/truth.json"))
    if "published" in (truth := json.loads(path.read_text()))
}


def finding(severity: str = "warning", basis: str = "none", **prices: float | None) -> Any:
    return {
        "code": "SYNC001",
        "severity": severity,
        "site": {"line": 7},
        "places": [],
        "per_step": 3.0,
        "basis": basis,
        **dict.fromkeys(("lost_us_per_step", "lost_us_per_step_low", "lost_us_per_step_high")),
        **prices,
    }


def pair(
    after: float, *findings: Any, before: float = 100, of: str = "step", audited: bool = True
) -> Pair:
    report = {
        "findings": list(findings),
        "run": {"step_us": {"mean": 1000.0, "median": 900.0}},
    }
    published = {"before": before, "after": after, "unit": "ms", "of": of, "counts": "waits"}
    truth = {"title": "A | B", "link": "https://x", "line": 7, "also": [], "published": published}
    side = Side(report if audited else None)
    return Pair("01_name", truth, side, Side({**report, "findings": []}))


def test_a_gain_is_a_share_of_the_time_that_was_taken_before() -> None:
    assert gains.gained({"before": 200, "after": 150}) == pytest.approx(0.25)
    assert gains.gained({"before": 150, "after": 200, "rate": True}) == pytest.approx(0.25)


MEASURED = {"basis": "measured", "lost_us_per_step": 150.0}


@pytest.mark.parametrize(
    ("after", "prices", "verdict"),
    [
        (90, {**MEASURED, "lost_us_per_step_low": 100.0, "lost_us_per_step_high": 200.0}, "right"),
        (91, {**MEASURED, "lost_us_per_step_low": 100.0, "lost_us_per_step_high": 200.0}, "wrong"),
        (50, {**MEASURED, "lost_us_per_step_low": 99.0, "lost_us_per_step_high": 200.0}, "open"),
        (99, {**MEASURED, "lost_us_per_step_low": -9.0, "lost_us_per_step_high": 99.0}, "right"),
        (50, {**MEASURED, "lost_us_per_step_low": -9.0, "lost_us_per_step_high": 99.0}, "wrong"),
        (99, {"basis": "estimated", "lost_us_per_step": 99.0}, "right"),
        (90, {"basis": "estimated", "lost_us_per_step": 100.0}, "right"),
    ],
)
def test_a_price_is_held_to_the_side_of_the_threshold(
    after: float, prices: dict[str, Any], verdict: str
) -> None:
    assert gains.verdict(pair(after, finding(**prices))) == verdict


@pytest.mark.parametrize(
    ("after", "severity", "verdict"),
    [
        (90, "warning", "no price"),
        (91, "warning", "no price, too loud"),
        (91, "note", "no price"),
        (90, "note", "no price, too quiet"),
    ],
)
def test_without_a_price_the_severity_speaks(after: float, severity: str, verdict: str) -> None:
    assert gains.verdict(pair(after, finding(severity))) == verdict


@pytest.mark.parametrize(("lost", "verdict"), [(100.0, "right"), (99.0, "wrong")])
def test_a_price_is_held_to_the_twin_as_well(lost: float, verdict: str) -> None:
    dear = pair(50, finding(basis="estimated", lost_us_per_step=lost))
    assert dear.ok.report is not None
    dear.ok.report["run"] = {"step_us": {"mean": 900.0, "median": 900.0}}
    assert gains.gained_here(dear) == pytest.approx(0.1)
    assert gains.verdict_here(dear) == verdict


def test_what_has_no_price_is_not_held_to_the_twin() -> None:
    assert gains.verdict_here(pair(50, finding())) == ""


def test_what_was_not_found_was_no_advice() -> None:
    elsewhere = {**finding(), "site": {"line": 8}}
    assert gains.verdict(pair(90, elsewhere)) == "wrong: not found"
    assert gains.verdict(pair(99, elsewhere)) == "right: silent"


def test_a_part_and_an_audit_to_come_are_not_judged() -> None:
    assert gains.verdict(pair(50, finding(), of="save")) == "a part"
    assert gains.verdict(pair(50, audited=False)) == "not audited yet"


def test_the_section_counts_verdicts_and_names_those_that_mislead() -> None:
    text = gains.section([pair(50, finding()), pair(95, finding()), pair(50)])
    assert "3 threads: 1 no price; 1 no price, too loud; 1 wrong: not found." in text
    assert max(map(len, text.partition("| thread")[0].splitlines())) <= 100
    named = re.findall(r"^- `\w+`, (.*?):", text, re.MULTILINE)
    assert named == ["no price, too loud", "wrong"]
    assert "5.0% of the step" in text
    assert "nothing stands at the line" in text
    assert "3 → 0 waits" in text
    assert r"A \| B" in text


def test_only_the_section_is_made_anew() -> None:
    page = "# Page\n\n| a |\n|---|\n"
    once = gains.renewed(page, [pair(50, finding())])
    assert once.startswith(page)
    assert gains.renewed(once, [pair(50, finding())]) == once


def test_at_least_twenty_threads_timed_the_whole_step() -> None:
    whole = [each for each in PUBLISHED.values() if each["published"]["of"] in gains.WHOLE]
    assert len(whole) >= 20


@pytest.mark.parametrize("name", PUBLISHED)
def test_what_a_thread_published_can_be_read(name: str) -> None:
    published = PUBLISHED[name]["published"]
    assert published["before"] > 0
    assert published["after"] > 0
    assert published.get("counts") in {None, "waits", "launches"}
    assert ("count_before" in published) == ("count_after" in published)
    assert "counts" in published or "count_before" not in published
    assert gains.gained(published) >= 0


def test_what_has_no_report_keeps_its_row_and_counts() -> None:
    def named(name: str, *findings: Any, audited: bool = True) -> Pair:
        each = pair(50, *findings, audited=audited)
        truth = {**each.truth, "title": name, "link": "https://x", "gained": "-", "also": []}
        return Pair(name, truth, each.bad, each.ok)

    first = page([named("1_found", finding()), named("2_missed")])
    assert "at the line: 1 of 2" in first and "audited yet: 0 of 2" in first
    new = [
        named("1_found", audited=False),
        named("2_missed", finding()),
        named("3_new", audited=False),
    ]
    again = page(new, first)
    assert "at the line: 2 of 2" in again and "audited yet: 1 of 3" in again
    assert "at the line: 1 of 1" in page(new)
