"""Words and numbers that every renderer shares: how often, of how many, by how much, on what."""

from dataclasses import replace

import pytest
from auditor.reports import headline, page, renderer, summary

from auditor.model import Rank
from tests.reports import golden_report as golden


def _seen(steps, per_step, seen_on="cpu"):
    return replace(
        golden.rich_report().findings[0], steps=steps, per_step=per_step, seen_on=seen_on
    )


@pytest.mark.parametrize(
    ("finding", "said"),
    [
        (_seen(50, 2.0), "2 per step, on all 50 steps"),
        (_seen(3, 1.0), "1 per step, on 3 steps"),
        (_seen(12, 1.0, "rehearsal"), "1 per step, on 12 rehearsed steps"),
        (_seen(1, 0.0263), "once"),
        (_seen(2, 0.00862), "on 2 steps"),
        (_seen(0, 0.0), ""),
    ],
)
def test_how_often(finding, said):
    assert summary.frequency(finding, golden.rich_report()) == said


def test_growth_is_a_price_of_each_step_and_outweighs_a_single_loss():
    once, growing = (
        replace(_seen(50, 1.0), lost_us_per_step=None, lost_bytes=size << 20, key=str(size))
        for size in (100, 4)
    )
    growing = replace(growing, grows=True)
    report = replace(golden.rich_report(), findings=(once, growing))
    assert [summary.cost(finding) for finding in report.findings] == ["4 MiB / step", "100 MiB"]
    assert headline.largest_memory(report) is growing, "50 steps of 4 MiB"
    assert "4 MiB <small>of memory per step</small>" in str(renderer("html").render(report))


def _rank(number, communication):
    return Rank(
        number, "", "", "cuda", 1, 10.0, 9.0, 5.0, communication, communication, 0.0, 0.0, None
    )


def _job(*communication):
    report = golden.silent_report()
    rows = tuple(_rank(number, us) for number, us in enumerate(communication))
    return replace(report, ranks=rows, run=replace(report.run, world_size=8, recorded_at=""))


def test_prose_spells_microseconds_as_the_page_does_but_not_in_code():
    assert (
        page.prose("267 us per step, `sleep(5 us)`") == "267 µs per step, <code>sleep(5 us)</code>"
    )
    assert page.prose("<b> and a ` alone") == "&lt;b&gt; and a ` alone"


def test_the_environment_is_for_people():
    known = {"cpu_count": "2", "host_memory": str(24 << 30), "OMP_NUM_THREADS": "1"}
    shown = dict(page.environment(replace(golden.silent_report(), environment=known)))
    assert shown == {"cpu count": "2", "host memory": "24 GiB", "OMP_NUM_THREADS": "1"}
    strange = replace(golden.silent_report(), environment={"host_memory": "a lot"})
    assert dict(page.environment(strange)) == {"host memory": "a lot"}


def test_a_chart_that_cannot_be_drawn_costs_one_sentence(monkeypatch):
    def broken(*_):
        raise ArithmeticError("no such place\nand more")

    for name in ("pictures", "charts"):
        monkeypatch.setattr(f"auditor.reports.charts.{name}", broken)
    shown = str(renderer("html").render(golden.rich_report()))
    assert shown.count("cannot be drawn: ArithmeticError: no such place</li>") == 2
    assert 'id="parts"' in shown
    assert 'id="finding-7"' in shown
