"""The section about torch.compile: in words, in the page and the terminal, and from a stranger."""

from __future__ import annotations

from dataclasses import replace

import pytest
from auditor.reports import compilation as words
from auditor.reports.as_json import load
from auditor.reports.terminal import Terminal

from auditor.judging.catalogue import renderer
from auditor.model import Site
from auditor.model.compilation import Compilation, CompiledPart, Gain
from tests.reports import golden_report as golden

PART = CompiledPart(Site("train.py", 7, "", "net = torch.compile(net)"), "Net", "mode='x'", 30, 40)
FOUND = Compilation(5, 2_000_000.0, 2, 1, 3, (PART,), Gain(4000.0, 3500.0, 4500.0, 20_000.0))


def report(found=FOUND, **more):
    return replace(golden.silent_report(), compilation=found and replace(found, **more))


def said(**more):
    return " ".join(words.sentences(report(**more)))


def test_all_is_said():
    assert said() == (
        "5 compilations in 2 s, 2 of them since a guard failed, 1 line at which a graph ends. "
        "Something was compiled in 3 timed steps. "
        "A step gains 4 ms (3.5 ms to 4.5 ms) against 20 ms held eager, measured: it has paid "
        "after 500 steps."
    )


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"compiled": 0, "again": 0, "breaks": 0}, "Nothing was compiled in the audited steps."),
        ({"compiled": 1, "again": 0, "breaks": 0}, "1 compilation in 2 s. Something"),
        ({"breaks": 2}, "2 lines at which a graph ends."),
        ({"during": 1}, "Something was compiled in 1 timed step."),
        ({"gain": Gain(10.0, -5.0, 25.0, 2000.0)}, "No gain is proven against 2 ms held eager."),
        (
            {"gain": Gain(-500.0, -600.0, -400.0, 2000.0)},
            "A step is 500 us slower than the 2 ms that it takes held eager, measured.",
        ),
    ],
)
def test_what_is_not_there_is_not_said(more, expected):
    assert expected in said(**more)
    assert ("timed step" in said(during=0)) is False
    assert "held eager" not in said(gain=None)


@pytest.mark.parametrize(
    ("gain", "us", "steps"),
    [
        (Gain(4000.0, 1.0, 4500.0, 1.0), 2e6, 500),
        (Gain(4000.0, 0.0, 4500.0, 1.0), 2e6, None),
        (Gain(4000.0, 1.0, 4500.0, 1.0), 0.0, 1),
        (Gain(4000.0, 1.0, 4500.0, 1.0), float("inf"), None),
        (Gain(0.0, 1.0, 4500.0, 1.0), 2e6, None),
        (None, 2e6, None),
    ],
)
def test_steps_after_which_it_has_paid(gain, us, steps):
    assert replace(FOUND, gain=gain, us=us).paid_after == steps


def test_terminal_and_page_have_it_and_json_brings_it_back():
    made = report()
    shown = " ".join(Terminal().render(made).split())
    assert "torch.compile: 5 compilations in 2 s" in shown
    page = renderer("html").render(made)
    for part in ('href="#compilation"', "Net", "train.py:7", "30 of 40 steps", "mode=&#39;x&#39;"):
        assert part in page
    assert load(renderer("json").render(made)).compilation == FOUND


def test_a_program_that_compiles_nothing_has_no_section():
    made = report(None)
    assert words.sentences(made) == () and words.rows(made) == ()
    assert "#compilation" not in renderer("html").render(made)
    assert "torch.compile" not in Terminal().render(made)


def test_a_strangers_report_cannot_steer():
    part = replace(PART, what="\x1b[31m<b>", options="<i>\n\x1b]0;", site=Site("<u>", 1, "", ""))
    made = report(parts=(part,), gain=Gain(float("nan"), float("inf"), 0.0, float("nan")))
    page, shown = renderer("html").render(made), Terminal().render(made)
    for bad in ("<b>", "<i>", "<u>", "\x1b"):
        assert bad not in page.partition('id="compilation"')[2].partition("</section>")[0]
    assert "\x1b" not in shown
