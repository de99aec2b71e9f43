"""Errors in what the step trains stand above what could be gained."""

import re
from dataclasses import replace

import pytest
from auditor.reports import renderer

from auditor.model import Finding, Severity, Site
from tests.reports import golden_report as golden


def page(*findings):
    return renderer("html").render(replace(golden.silent_report(), findings=findings))


def found(code, number, severity):
    site = Site("train.py", number, "step", "x")
    message = f"says {number} of <b>"
    return Finding(site, message, code=code, key=f"k{number}", severity=severity)


def section(html):
    return html.partition('id="training"')[2].partition("</section>")[0]


def test_errors_of_training_come_before_prices_and_lead_to_their_findings():
    html = page(
        found("SYNC001", 1, Severity.ERROR),
        found("TRAIN001", 2, Severity.ERROR),
        found("TRAIN004", 3, Severity.ERROR),
        found("TRAIN003", 4, Severity.WARNING),
    )
    part = section(html)
    assert re.findall(r'href="#([\w-]+)"', part) == ["finding-2", "finding-3"]
    assert "says 2 of &lt;b&gt;" in part and "says 4" not in part
    assert 'href="#training"' in html
    assert html.index('id="training"') < html.index('aria-label="What can be gained"')


@pytest.mark.parametrize(
    "finding",
    [
        found("TRAIN001", 1, Severity.WARNING),
        found("TRAIN001", 1, None),
        found("SYNC001", 1, Severity.ERROR),
        found("TRAINS001", 1, Severity.ERROR),
    ],
)
def test_where_there_is_none_there_is_no_section(finding):
    assert "#training" not in page(finding) and not section(page(finding))


@pytest.mark.parametrize(("number", "listed", "more"), [(8, 8, ""), (9, 8, "1 finding more")])
def test_of_many_the_first_are_listed(number, listed, more):
    part = section(page(*(found("TRAIN001", n, Severity.ERROR) for n in range(1, number + 1))))
    assert part.count('href="#finding-') == listed
    assert (more in part) if more else "more" not in part
