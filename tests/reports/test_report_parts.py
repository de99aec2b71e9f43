"""The parts of renderers: amounts, safe text, thinned charts, manual pages, light imports."""

import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from auditor.reports import charts, headline, page, summary, text
from auditor.reports.html import Html
from hypothesis import given
from hypothesis import strategies as st

from auditor import amounts
from auditor.model import Severity, Verdict
from auditor.model.charts import Series
from tests.reports import golden_report as golden

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (1023, "1,023 B"),
        (1024, "1 KiB"),
        (587_202_560, "560 MiB"),
        (3 << 30, "3 GiB"),
        (1 << 60, "1,048,576 TiB"),
    ],
)
def test_sizes(count, shown):
    assert amounts.size(count) == shown


@pytest.mark.parametrize(
    ("share", "shown"),
    [(0, "0.0%"), (0.0004, "<0.1%"), (0.011, "1.1%"), (0.32, "32%"), (math.nan, "?")],
)
def test_percentages(share, shown):
    assert amounts.percent(share) == shown


@pytest.mark.parametrize(
    ("moment", "shown"),
    [
        ("2026-11-21T15:04:05Z", "2026-11-21 15:04 UTC"),
        ("2026-11-21T16:04:05+01:00", "2026-11-21 15:04 UTC"),
        ("0001-01-01T00:00:00+01:00", "0001-01-01T00:00:00+01:00"),
        ("yesterday", "yesterday"),
    ],
)
def test_moments(moment, shown):
    assert amounts.moment(moment) == shown


@given(st.text(st.characters()))
def test_visible_text_hides_nothing_and_can_be_encoded(raw):
    shown = text.visible(raw)
    shown.encode("utf-8")
    assert all(char.isprintable() or char in "\n\t" for char in shown)


points = st.lists(
    st.tuples(st.floats(0, 1e6), st.none() | st.floats(-1e6, 1e6)), min_size=1, max_size=300
)


@given(points, st.integers(6, 60))
def test_thinning_keeps_extremes_ends_and_order(all_points, limit):
    kept = charts.thinned(all_points, limit)
    assert len(kept) <= limit or len(all_points) <= limit
    assert kept[0] == all_points[0]
    assert kept[-1] == all_points[-1]
    remaining = iter(all_points)
    assert all(point in remaining for point in kept)
    heights = [y for _, y in all_points if y is not None]
    if heights:
        drawn = [y for _, y in kept if y is not None]
        assert (min(drawn), max(drawn)) == (min(heights), max(heights))


def test_a_long_chart_stays_within_its_points_and_keeps_its_outlier():
    x = tuple(map(float, range(200_000)))
    y = tuple(90_000.0 if step == 123_457 else 1_000.0 + step % 7 for step in range(200_000))
    (chart,) = charts.charts((Series("quiet", "us", x, y), Series("loud", "us", x, y)))
    assert chart.total == 400_000
    assert chart.kept <= charts.POINTS
    assert chart.drawn <= charts.DRAWN
    assert any(height == 90.0 for _, height in chart.lines[0].points)


def test_gaps_lift_the_pen_and_lone_points_are_dots():
    (chart,) = charts.charts(
        (Series("quiet", "us", (0.0, 1.0, 2.0, 3.0), (1.0, math.nan, 2.0, math.inf)),)
    )
    assert chart.lines[0].path.count("M") == 2
    assert [y for _, y in chart.lines[0].points] == [1.0, None, 2.0, None]


@pytest.mark.parametrize("values", [(), (math.nan,), (0.0,), (-5.0, -7.0), (1e300, 1e-300)])
def test_odd_series_are_drawn_or_left_out(values):
    x = tuple(map(float, range(len(values))))
    for chart in charts.charts(
        (Series("odd", "us", x, values), Series("other", "furlongs", x, values))
    ):
        assert "nan" not in chart.lines[0].path
        assert "inf" not in chart.lines[0].path


def test_ticks_are_round():
    assert charts.ticks(0, 63.6, 4) == (0, 20, 40, 60)
    assert charts.ticks(5, 62, 8) == (10, 20, 30, 40, 50, 60)


def test_manual_pages_become_headings_lists_and_code():
    shown = page.manual(golden.MANUAL)
    assert "<h4>SYNC001 A tensor becomes a Python number on every step</h4>" in shown
    assert "<h5>What it finds</h5>" in shown
    assert "<li>in a metric that is\nupdated by the loop</li>" in shown
    assert "<code>.item()</code>, <code>float(t)</code> or <code>if t:</code>" in shown
    assert "<strong>nearly every</strong>" in shown
    assert "def step(loss):\n    return loss.mean().item()   # &lt;- waits\n</code></pre>" in shown
    assert re.search(r"<th[^>]*>share</th>\s*<td>0.9</td>", shown)


@given(st.text(st.sampled_from("#`*-|~ \n<>&\"'ab"), max_size=60))
def test_any_markdown_ends_and_lets_no_markup_through(markdown):
    shown = re.sub(
        r' class="language-[^"]*"| style="text-align:(left|right|center)"| /(?=>)',
        "",
        str(page.manual(markdown)),
    )
    for tag in "p ul li code em strong h4 h5 h6 blockquote hr br".split():
        shown = shown.replace(f"<{tag}>", "").replace(f"</{tag}>", "")
    for tag in ("table", "thead", "tbody", "tr", "th", "td"):
        shown = shown.replace(f"<{tag}>", "").replace(f"</{tag}>", "")
    assert "<" not in shown.replace('<pre tabindex="0">', "").replace("</pre>", "")


@pytest.mark.parametrize(
    ("number", "why"), [(1, "some of it"), (2, "their prices share time, or some of it")]
)
def test_shares_above_one_say_why(number, why):
    report = golden.rich_report()
    dear = replace(report.findings[0], lost_us_per_step=90_000.0, verified=None)
    found = tuple(replace(dear, key=str(each)) for each in range(number))
    report = replace(report, findings=found)
    shown = f"more than the whole median step: {why} lies outside the steps"
    (said,) = headline.headline(report)
    assert said.startswith("measured: fixing ")
    assert shown in Html().render(report)
    assert summary.share(dear, report) == "more than 100%"


@pytest.mark.parametrize(
    ("taken", "steps", "often"),
    [
        ("51", 51, ""),
        ("51", 4, " on average"),
        ("51", None, ""),
        ("many", 4, ""),
        ("", 4, ""),
    ],
)
def test_waits_of_some_steps_are_told_on_average(taken, steps, often):
    report = golden.rich_report()
    wait = replace(
        next(each for each in report.findings if each.code.startswith("SYNC")),
        severity=Severity.WARNING,
        lost_us_per_step=None,
        verified=None,
        basis="none",
        per_step=8.0,
        steps=steps,
    )
    report = replace(
        report,
        run=replace(report.run, device="cpu"),
        environment={"rehearsed on": "NVIDIA H200", "rehearsed steps": taken},
        findings=(wait,),
    )
    assert f"would wait for the GPU 8 times{often}" in headline.headline(report)[0]
    known = "for 51 steps " if taken == "51" else ""
    assert f"GPU path rehearsed {known}on the CPU" in summary.rehearsed(report)


def test_a_rule_is_as_severe_as_its_worst_finding():
    report = golden.rich_report()
    one, *_ = report.findings
    note, error = (
        replace(one, code="NEW001", severity=each) for each in (Severity.NOTE, Severity.ERROR)
    )
    report = replace(report, findings=(note, error, replace(one, code="NEW002", severity=None)))
    assert summary.worst(report, "NEW001") is Severity.ERROR
    assert summary.worst(report, "NEW002") is Severity.NOTE
    verdict = Verdict("NEW001", "new", "found")
    for each in (note, error):
        shown = Html().render(replace(report, findings=(each,), verdicts=(verdict,)))
        assert f'class="chip found {each.severity}"' in shown


def test_findings_without_a_price_are_counted_by_severity():
    report = golden.rich_report()
    note = next(
        finding
        for finding in report.findings
        if finding.severity is Severity.NOTE and not finding.lost_us_per_step
    )
    assert headline.headline(replace(report, findings=(note,))) == (
        "found 1 note; what it costs in time is not known",
    )


def test_importing_the_room_loads_no_renderer():
    code = (
        "import sys, auditor.reports; heavy = {'jinja2', 'plotly', 'rich', 'msgspec', 'torch', "
        "'pandas', 'numpy'} & set(sys.modules);"
        "assert not heavy, heavy;"
        "auditor.reports.renderer('html').render; heavy = {'torch', 'pandas', 'numpy'} & "
        "set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)
