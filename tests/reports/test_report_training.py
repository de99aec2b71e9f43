"""Errors in what the step trains stand above what could be gained."""

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


@pytest.mark.parametrize(("number", "listed", "more"), [(8, 8, ""), (9, 8, "1 finding more")])
def test_of_many_the_first_are_listed(number, listed, more):
    part = section(page(*(found("TRAIN001", n, Severity.ERROR) for n in range(1, number + 1))))
    assert part.count('href="#finding-') == listed
    assert (more in part) if more else "more" not in part
