"""Prices of a rehearsal's findings: a lower bound from a copy's bytes, a bound of all waits from the
busy time, or the reason why there is none; and what they do to the report's order.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from auditor.reports import costs, forecasts
from auditor.reports.as_json import Json, load
from auditor.reports.html import Html
from auditor.reports.terminal import Terminal

from auditor.evidence.table import Evidence
from auditor.extensions.forecast import prices as forecast_prices
from auditor.extensions.forecast.prices import LEAST_SHARE, MOST_GBS, PACE, copy_us
from auditor.model import Finding, Severity, Site, prices
from auditor.model.forecasts import Forecast, GpuForecast
from auditor.recordings.folder import SCHEMA, Recording, RecordingWriter, write_manifest
from tests.reports import golden_report as golden

BUSY = Forecast(gpus=(GpuForecast("L40S", 4000.0, 10_000.0, 0.1),))
UNKNOWN = Forecast(gpus=(GpuForecast("L40S", reasons=("nobody knows",)),))
STEPS = 4


def rehearsal(folder: Path, size: int = 0, n: int = 1, **copy: bool) -> Evidence:
    """So many bytes copied in ``n`` copies by line 7 in each of four steps."""
    writer = RecordingWriter(folder)
    at = writer.site(str(folder / "t.py"), 7, "step")
    writer.touch("copies")
    for step in range(STEPS):
        common = {"pass": "loud", "step": step}
        writer.add_fields("device_use", {**common, "n": 9})
        if size:
            row = {"at": at, "n": n, "bytes": size, "blocking": True, **copy}
            writer.add_fields("copies", {**common, **row})
    writer.close()
    manifest = {"schema": SCHEMA, "cwd": str(folder), "device": "rehearse", "outcome": "completed"}
    write_manifest(folder, manifest)
    return Evidence(Recording(folder))


def found(code: str = "SYNC010", line: int = 7, **more: object) -> Finding:
    one = Finding(
        Site("t.py", line), "said", seen_on="rehearsal", code=code, severity=Severity.WARNING
    )
    return replace(one, **more)


def told(evidence: Evidence, finding: Finding, forecast: Forecast | None = BUSY) -> Finding:
    (one,) = forecast_prices.prices(evidence, (finding,), forecast)
    return one


def test_a_copy_that_is_left_out_gives_back_its_own_time_at_least(tmp_path: Path) -> None:
    one = told(rehearsal(tmp_path, 64_000_000, n=2), found())
    assert one.basis == "forecast"
    assert one.lost_us_per_step is None
    assert one.lost_us_per_step_high is None  # the wait comes on top
    assert one.lost_us_per_step_low == pytest.approx(copy_us(64_000_000, 2)[0])
    assert one.lost_us_per_step_low >= 64_000_000 / (MOST_GBS * 1e3)
    assert one.unpriced == ""
    ((name, said),) = one.facts
    assert name == "the copy itself takes" and said.endswith("per step (forecast)")


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_what_is_nothing_beside_the_busy_time_is_no_price(tmp_path: Path, factor: float) -> None:
    least = LEAST_SHARE * 10_000.0 * factor
    size = round((least - copy_us(0, 1)[0]) * MOST_GBS * 1e3)
    one = told(rehearsal(tmp_path, size), found())
    assert (one.basis, bool(one.unpriced)) == (
        ("forecast", False) if factor > 1 else ("none", True)
    )
    assert [name for name, _ in one.facts] == ["the copy itself takes"]


def test_without_a_busy_time_there_is_none_either(tmp_path: Path) -> None:
    evidence = rehearsal(tmp_path, 64_000_000)
    for forecast in (None, UNKNOWN):
        one = told(evidence, found(), forecast)
        assert (one.basis, one.unpriced) == ("none", PACE)


def test_copies_that_the_host_does_not_wait_for_are_not_the_hosts(tmp_path: Path) -> None:
    one = told(rehearsal(tmp_path, 64_000_000, blocking=False), found())
    assert (one.basis, one.facts) == ("none", ())


def test_another_lines_copies_say_nothing(tmp_path: Path) -> None:
    assert told(rehearsal(tmp_path, 64_000_000), found(line=8)).basis == "none"


def test_a_copy_that_stays_has_a_reason(tmp_path: Path) -> None:
    one = told(rehearsal(tmp_path, 64_000_000), found("SYNC006"))
    assert (one.basis, one.facts) == ("none", ())
    assert one.unpriced.startswith(PACE)


def test_all_waits_together_cost_no_more_than_the_busy_time(tmp_path: Path) -> None:
    evidence = rehearsal(tmp_path)
    assert told(evidence, found("SYNC001")).unpriced == (
        f"{PACE}; all waits of a step together cost at most 10 ms (forecast for L40S), their "
        "calls' own time aside"
    )
    assert told(evidence, found("SYNC001"), UNKNOWN).unpriced == PACE
    assert told(evidence, found("OPT001")).unpriced == PACE  # launches are no wait


def test_what_is_no_question_of_time_or_has_a_price_stays_as_it_is(tmp_path: Path) -> None:
    evidence = rehearsal(tmp_path, 64_000_000)
    for one in (
        found("NUM005"),
        found("MEM003"),
        found("SYNC001", seen_on="cpu"),
        found("SYNC010", basis="estimated", lost_us_per_step=4.0),
        found("SYNC010", basis="none", seen_on="trace"),
    ):
        assert told(evidence, one) is one


def test_no_rehearsal_no_change(tmp_path: Path) -> None:
    manifest = {"schema": SCHEMA, "cwd": "/", "device": "cpu", "outcome": "completed"}
    write_manifest(tmp_path, manifest)
    one = found()
    assert told(Evidence(Recording(tmp_path)), one) is one


def test_a_copy_takes_between_its_ends() -> None:
    low, high = copy_us(12_000_000, 1)
    assert low < 12_000_000 / 12.0 / 1e3 < high  # PCIe 3.0, pinned
    assert low < 12_000_000 / 4.5 / 1e3 < high  # pageable
    assert copy_us(0, 3) == (
        3 * forecast_prices.LEAST_COPY_US,
        3 * forecast_prices.MOST_COPY_US,
    )


FORECAST = found(basis="forecast", lost_us_per_step_low=1300.0)
WAIT = found("SYNC001", unpriced=PACE)


def test_the_order_follows_it() -> None:
    small = found(line=9, basis="forecast", lost_us_per_step_low=20.0)
    measured = found("DATA007", basis="measured", lost_us_per_step=5.0, seen_on="cpu")
    held = found("MEM003", lost_bytes=1 << 20, basis="estimated")
    scale = prices.Scale(forecast_us=13_000.0)
    ordered = prices.in_order((WAIT, held, small, measured, FORECAST), scale)
    assert ordered == (measured, FORECAST, small, held, WAIT)


def test_it_never_looks_like_a_measured_price() -> None:
    report = replace(golden.silent_report(), findings=(FORECAST, WAIT), forecast=BUSY)
    assert costs.price(FORECAST) == "at least 1.3 ms / step forecast"
    assert costs.short(FORECAST) == "at least 1.3 ms / step"
    both = replace(FORECAST, lost_us_per_step_high=9000.0)
    assert costs.price(both) == "1.3 ms to 9 ms / step forecast"
    shown = Terminal(width=120).render(report)
    assert "at least 1.3 ms / step forecast" in shown
    assert f"Not priced: SYNC001: {PACE}." in shown
    assert "could come back" not in shown  # no sum holds it
    page = Html().render(report)
    assert "forecast from shapes and bytes, not measured" in page
    assert PACE.replace("'", "&#39;") in page
    assert load(Json().render(report)).findings == report.findings


def test_reasons_are_said_once() -> None:
    again = replace(WAIT, code="SYNC002")
    report = replace(golden.silent_report(), findings=(WAIT, again, replace(WAIT, unpriced="so")))
    assert forecasts.unpriced(report) == (
        f"Not priced: SYNC001, SYNC002: {PACE}.",
        "Not priced: SYNC001: so.",
    )
