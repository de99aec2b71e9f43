"""Filled charts: whatever a report holds is drawn or left out, few points, right heights, links
both ways.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
from auditor.reports import charts, lanes, page, renderer, stacked
from hypothesis import given, settings
from hypothesis import strategies as st

from auditor.model import Report
from auditor.model.charts import Bar, Gap, Lanes, Layers, Pointer, Tone
from tests.reports import golden_charts
from tests.reports import golden_report as golden

numbers = st.floats(allow_nan=True, allow_infinity=True)
words = st.text(max_size=8)
tones = st.lists(st.builds(Tone, words, st.integers(-2, 12)), max_size=3).map(tuple)
amounts = st.lists(st.integers(-5, 2**60), max_size=4).map(tuple)
any_layers = st.builds(
    Layers, words, words, st.sampled_from(("us", "event")), st.lists(numbers, max_size=4).map(tuple), tones,
    st.lists(amounts, max_size=3).map(tuple), amounts, st.lists(st.tuples(numbers, words), max_size=3).map(tuple),
    st.integers(0, 9), st.just(("MEM",)),
)  # fmt: skip
any_lanes = st.builds(
    Lanes, st.sampled_from(("timeline", "parts", "segments")), words, words, st.sampled_from(("us", "bytes")),
    st.lists(words, max_size=3).map(tuple), tones,
    st.lists(st.builds(Bar, st.integers(-1, 4), numbers, numbers, st.integers(-1, 4), words), max_size=5).map(tuple),
    st.lists(st.tuples(st.integers(-1, 4), numbers), max_size=3).map(tuple),
    st.lists(st.builds(Pointer, words, numbers, numbers), max_size=3).map(tuple), st.integers(0, 9), st.just(("MEM",)),
    st.none() | st.builds(Gap, st.lists(st.integers(-1, 4), max_size=2).map(tuple), numbers, numbers, numbers, st.just("host"), words, words),
)  # fmt: skip


def _page(report: Report) -> str:
    rendered = renderer("html").render(report)
    assert isinstance(rendered, str)
    return rendered


@given(any_layers, any_lanes)
@settings(max_examples=300, deadline=None)
def test_any_chart_is_drawn_or_left_out(one: Layers, other: Lanes) -> None:
    for picture in (
        *stacked.pictures((one,)),
        *lanes.pictures((other,), {"": ("finding-1", "SYNC001")}),
    ):
        assert all(re.fullmatch(r"[MHVhvz\d .-]+", shape.path) for shape in picture.shapes)
        assert picture.rows > 0


def test_the_top_of_the_stack_is_the_sum() -> None:
    (picture,) = stacked.pictures((golden_charts.memory(),))
    highest = next(shape for shape in picture.shapes if shape.shade == "fill tone-rest")
    tops = [float(place) for place in re.findall(r"V([\d.]+)", highest.path)]
    total, top = 3.515625, 4 * 1.04  # 2 + 1.5 + 1/64 GiB, under a reserved line at 4
    assert min(tops) == pytest.approx((1 - total / top) * charts.HEIGHT, abs=0.1)
    assert [key.name for key in picture.keys[:3]] == [
        "all other lines",
        "trainer.py:140 step",
        "model.py:31 __init__",
    ]
    assert picture.said == "At most 3.52 GiB in use and 4 GiB reserved; 3.52 GiB in use at the end."


def test_a_chart_has_five_thousand_points_at_most() -> None:
    x = tuple(map(float, range(50_000)))
    large = replace(
        golden_charts.memory(), x=x, held=(tuple(range(50_000)),) * 3, reserved=tuple(range(50_000))
    )
    (picture,) = stacked.pictures((large,))
    drawn = picture.data()
    assert (
        sum(len(layer["y"]) for layer in drawn["layers"]) + len(drawn["reserved"]) <= charts.POINTS
    )
    bars = tuple(Bar(0, float(number), 1.0, 0, "x") for number in range(20_000))
    (picture,) = lanes.pictures((replace(golden_charts.timeline(""), bars=bars),), {})
    assert sum(len(group["lane"]) for group in picture.data()["groups"]) <= charts.POINTS


def test_bars_that_fit_nowhere_are_left_out() -> None:
    chart = golden_charts.timeline("")
    odd = (
        Bar(7, 0.0, 1.0, 0),
        Bar(0, 0.0, 1.0, 9),
        Bar(0, -1.0, 1.0, 0),
        Bar(0, math.nan, 1.0, 0),
        Bar(0, 0.0, math.inf, 0),
    )
    (picture,) = lanes.pictures((replace(chart, bars=(*chart.bars, *odd)),), {})
    assert sum(len(group["lane"]) for group in picture.data()["groups"]) == 3
    assert lanes.pictures((replace(chart, bars=odd),), {}) == ()


def test_a_finding_points_at_its_charts_and_the_chart_at_its_findings() -> None:
    report = golden.rich_report()
    text = _page(report)
    memory = next(
        f"finding-{n}"
        for n, finding in enumerate(report.findings, 1)
        if finding.code.startswith("MEM")
    )
    article = text[
        text.index(f'<article class="finding {_severity(report, memory)}" id="{memory}"') :
    ]
    assert '<a href="#memory-1">' in article[: article.index("</article>")]
    first = text[text.index('id="finding-1"') :]
    assert '<a href="#timeline-1">' in first[: first.index("</article>")]
    figure = text[text.index('<figure class="chart" id="timeline-1"') :]
    assert (
        '<a href="#finding-1"><b>SYNC001</b></a> at 9 ms for 400 µs'
        in figure[: figure.index("</figure>")]
    )


def _severity(report: Report, anchor: str) -> str:
    return next(card.severity for card in page.cards(report) if card.id == anchor)


def test_a_prediction_is_called_one_under_its_title() -> None:
    text = _page(golden.rich_report())
    figure = text[text.index('<figure class="chart" id="memory-1"') :]
    assert "Predicted: from a rehearsal." in figure[: figure.index("</figcaption>")]


GAP = Gap((1,), 30_500.0, 4500.0, 0.128, "device", "the host was in `aten::sort`", "it")


def _with_gap(gap: Gap | None) -> str:
    """The figure of a step with a gap, which the second finding explains."""
    report = golden.rich_report()
    chart = replace(golden_charts.timeline(""), gap=gap)
    findings = (report.findings[0], replace(report.findings[1], key="it"))
    text = _page(replace(report, findings=findings, lanes=(chart,)))
    figure = text[text.index('<figure class="chart" id="timeline-1"') :]
    return figure[: figure.index("</figure>")]


def test_the_costliest_gap_is_drawn_told_and_leads_to_its_finding() -> None:
    figure = _with_gap(GAP)
    told = (
        "<b>Costliest gap:</b> 4.5 ms of this step (13%) without work on the device, from 30.5 ms on: "
        "the host was in <code>aten::sort</code>."
    )
    assert told in figure
    second = golden.rich_report().findings[1].code
    assert f'<a href="#finding-2">{second}</a> explains it' in figure
    (path,) = re.findall(r'<path class="fill gap" d="M([\d.]+) [\d.]+h([\d.]+)', figure)[:1]
    assert [float(part) for part in path] == pytest.approx(
        [30.5 / 35 * 1000, 4.5 / 35 * 1000], abs=0.1
    )
    assert "the costliest gap" in figure


def test_a_gap_without_a_finding_is_told_and_leads_nowhere() -> None:
    figure = _with_gap(replace(GAP, key="nobody's"))
    assert "Costliest gap:" in figure
    assert "explains it" not in figure


@pytest.mark.parametrize(
    "gap",
    [
        None,
        *(replace(GAP, lanes=lanes) for lanes in ((), (7,), (-1,))),
        *(replace(GAP, length=length) for length in (0.0, math.inf, math.nan)),
        replace(GAP, start=-1.0),
        *(replace(GAP, share=share) for share in (0.0, 1.5)),
    ],
)
def test_no_gap_and_one_that_fits_nowhere_are_not_drawn(gap: Gap | None) -> None:
    figure = _with_gap(gap)
    assert "gap" not in figure
