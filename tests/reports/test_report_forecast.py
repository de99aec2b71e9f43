"""Forecasts for GPUs that were not there: intervals in the page, the terminal and report.json, and
reasons where there is none.
"""

from __future__ import annotations

import re
from dataclasses import replace

from auditor.reports import forecasts
from auditor.reports.as_json import Json, load
from auditor.reports.html import Html
from auditor.reports.terminal import Terminal

from auditor.model.forecasts import Forecast, GpuForecast, OperatorClass
from tests.reports import golden_report as golden

SMALL = "several GPUs: what the others do is not predicted"
H200 = GpuForecast("H200", 3100.0, 8900.0, 0.141)
L4 = GpuForecast("L4", 16_000.0, 131_000.0, 0.2)
B200 = GpuForecast("B200", reasons=(SMALL,))
FORECAST = Forecast(
    asked=True,
    steps=12,
    operators=244.0,
    flops=1e12,
    gpus=(H200, L4, B200),
    classes=(OperatorClass("matrix products", 0.8),),
)
NOTHING = replace(FORECAST, asked=False, gpus=(replace(B200, gpu="H200"), B200))


def report(forecast: Forecast | None = FORECAST):
    return replace(golden.silent_report(), forecast=forecast)


def words(page: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", page).split())


def test_an_interval_and_what_it_does_not_hold():
    first, second = forecasts.sentences(report())
    assert first == (
        "Forecast for H200 (--gpu): kernels would keep it busy 3.1 ms to 8.9 ms in each step, at "
        "most 14% MFU."
    )
    assert "not measured" in second and "80% of programs" in second
    assert "the host, whose pace beside a GPU is not known here" in second


def test_a_default_is_said_to_be_one():
    (first, _) = forecasts.sentences(report(replace(FORECAST, asked=False)))
    assert first.startswith("Forecast for H200 (by default; --gpu NAME chooses another): ")


def test_reasons_stand_in_the_place_of_an_interval():
    (only,) = forecasts.sentences(report(NOTHING))
    assert only == (
        "Forecast for H200 (by default; --gpu NAME chooses another) and 1 other GPU: cannot say how "
        f"long a step would keep them busy: {SMALL}."
    )
    assert forecasts.rows(report(NOTHING)) == ()


def test_ten_rows_of_cannot_say_are_one_sentence():
    """Also where the GPUs' reasons are not the same."""
    other = replace(B200, gpu="L4", reasons=("recurrent layers",))
    silent = report(replace(FORECAST, gpus=(B200, other, replace(other, gpu="T4"))))
    assert forecasts.rows(silent) == ()
    (only,) = forecasts.sentences(silent)
    assert " and 2 other GPUs: cannot say how long a step would keep them busy: " in only


def test_the_table_has_reasons_too():
    first, _, third = forecasts.rows(report())
    assert (first.gpu, first.chosen, first.busy, first.mfu) == (
        "H200",
        True,
        "3.1 ms to 8.9 ms",
        "at most 14%",
    )
    assert (third.busy, third.mfu, third.why) == ("cannot say", "", SMALL)


def test_the_table_stands_where_only_another_gpu_has_an_interval():
    some = replace(FORECAST, gpus=(B200, L4))
    assert [row.busy for row in forecasts.rows(report(some))] == ["cannot say", "16 ms to 131 ms"]


def test_the_terminal_is_brief_about_a_gpu_that_nobody_named():
    shown = Terminal(width=300).render(report(replace(FORECAST, asked=False)))
    assert "Forecast for H200 (by default; --gpu NAME chooses another)" in shown
    assert "The report's page compares 2 other GPUs." in shown
    assert "L4" not in shown
    assert "A forecast is from the shapes" not in shown
    alone = Terminal(width=300).render(report(replace(FORECAST, asked=False, gpus=(H200,))))
    assert "other GPU" not in alone


def test_the_terminal():
    shown = Terminal(width=120).render(report())
    assert "Forecast for H200 (--gpu): kernels would keep it busy 3.1 ms to 8.9 ms" in shown
    assert re.search(r"^  L4 +16 ms to 131 ms +at most 20%$", shown, re.MULTILINE)
    assert re.search(r"^  B200 +cannot say +-: several GPUs", shown, re.MULTILINE)
    assert "Forecast" not in Terminal(width=120).render(report(None))


def test_no_time_is_a_point():
    """Each time that is shown is an end of an interval."""
    shown = [*forecasts.sentences(report()), *(row.busy for row in forecasts.rows(report()))]
    for said in shown:
        times = re.findall(r"[\d.]+ (?:us|ms|s)\b", said)
        assert len(times) == 2 * len(re.findall(r"[\d.]+ ms to [\d.]+ ms", said))


def test_the_page():
    page = Html().render(report())
    assert '<section id="forecast"' in page
    assert '<a href="#forecast">' in page
    said = words(page)
    assert "no GPU was there: nothing here was measured" in said
    assert "H200 chosen 3.1 ms to 8.9 ms at most 14% L4" in said
    assert 'id="forecast"' not in Html().render(report(None))


def test_report_json_keeps_it():
    again = load(Json().render(report()))
    assert again.forecast == FORECAST
    assert again.forecast is not None and again.forecast.basis == "forecast"


def test_what_a_stranger_writes_cannot_steer_a_terminal():
    odd = replace(FORECAST, gpus=(replace(B200, gpu="\x1b[2J", reasons=("\x1b]0;x",)), L4))
    assert "\x1b" not in Terminal(width=120).render(report(odd))
