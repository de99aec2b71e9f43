"""Prices of work that nobody needs: what its operators keep the GPU busy with, where all that ran on
its lines is such work; else the reason why there is none. And the report's order follows it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from auditor.evidence.table import Evidence
from auditor.extensions.forecast import step as forecasted
from auditor.extensions.forecast.counts import Call, Tensor
from auditor.extensions.forecast.model import LOWER, UPPER, counted, forecast, part_us
from auditor.extensions.forecast.prices import NO_ORDER, NOT_THERE
from auditor.extensions.forecast.prices import prices as prices_of
from auditor.model import Finding, Severity, Site, prices
from auditor.recordings.folder import Recording, RecordingWriter, write_manifest
from tests.judging.test_forecast_trace import ordered
from tests.judging.test_forecasted import GRU, PRODUCT

STEP = [*[(0, 7)] * 20, (0, 8), (0, 8)]
"""Twenty products on line 7, two on line 8; the second of the two steps has one less."""


def rehearsal(
    folder: Path, *rows: dict[str, Any], order: list[tuple[int, int]], **needless: float
) -> Evidence:
    """With so many operators per step on these lines (``at8=2``) that nobody needs."""
    evidence = ordered(folder, *rows, order=order)
    writer = RecordingWriter(folder)
    for line in dict.fromkeys(line for _, line in order if line):  # numbered as before
        writer.site(str(folder / "t.py"), line, "step")
    writer.touch("thrown")
    whole = {"pass": "numbers", "step": 0, "steps": 2, "trained": True}
    for name, operators in needless.items():
        at = writer.site(str(folder / "t.py"), int(name.removeprefix("at")), "step")
        row = {**whole, "what": "result", "at": at, "operators": operators, "share": 0.1}
        writer.add_fields("thrown", row)
    writer.add_fields("thrown", {**whole, "what": "all", "operators": 22.0, "share": 1.0})
    writer.close()
    write_manifest(folder, evidence.recording.manifest)
    return Evidence(Recording(folder))


def wasted(line: int = 8, code: str = "WASTE002") -> Finding:
    site = Site("t.py", line)
    return Finding(site, "said", seen_on="rehearsal", code=code, severity=Severity.WARNING)


def told(evidence: Evidence, *findings: Finding) -> tuple[Finding, ...]:
    return prices_of(evidence, findings, forecasted.forecast(evidence, []))


def test_what_nobody_needs_keeps_the_gpu_busy_between_two_ends(tmp_path: Path) -> None:
    evidence = rehearsal(tmp_path, PRODUCT, order=STEP, at8=1.5)
    (one,) = told(evidence, wasted())
    assert (one.basis, one.unpriced, one.lost_us_per_step) == ("forecast", "", None)
    assert one.lost_us_per_step_low is not None and one.lost_us_per_step_high is not None
    sheet = 1.5 * 2 * 4096**3 / 989.4e12 * 1e6
    assert one.lost_us_per_step_low >= 0.999 * sheet
    assert one.lost_us_per_step_high >= 2.4 * one.lost_us_per_step_low
    ((name, said),) = one.facts
    assert name == "its operators keep the GPU busy"
    assert said.endswith("per step (forecast for H100)")


def test_no_part_takes_longer_than_the_whole_step(tmp_path: Path) -> None:
    evidence = rehearsal(tmp_path, PRODUCT, order=STEP, at7=20.0)
    (one,) = told(evidence, wasted(7))
    forecast_ = forecasted.forecast(evidence, [])
    assert forecast_ is not None
    assert one.lost_us_per_step_high == forecast_.gpus[0].high_us


@pytest.mark.parametrize(("needless", "known"), [(1.5, True), (1.4, False), (21.5, True)])
def test_a_line_that_also_does_what_is_needed_has_no_price(
    tmp_path: Path, needless: float, known: bool
) -> None:
    evidence = rehearsal(tmp_path, PRODUCT, order=STEP, at8=needless)
    (one,) = told(evidence, wasted())
    assert (one.basis == "forecast") == known
    assert ("are not needed: which of them is not recorded" in one.unpriced) == (not known)


def test_another_rules_operators_do_not_count(tmp_path: Path) -> None:
    evidence = rehearsal(tmp_path, PRODUCT, order=STEP, at8=2.0)
    (one,) = told(evidence, wasted(code="WASTE005"))
    assert one.unpriced.startswith("1.5 operators run on its line in each step, and 0 are not")


def test_lines_without_an_operator_or_a_forecast_have_a_reason(tmp_path: Path) -> None:
    evidence = rehearsal(tmp_path / "one", PRODUCT, order=STEP, at9=1.0)
    (one,) = told(evidence, wasted(9))
    assert one.unpriced == NOT_THERE
    silent = rehearsal(tmp_path / "two", PRODUCT, GRU, order=STEP, at8=2.0)
    (one,) = told(silent, wasted())
    assert one.unpriced == NO_ORDER


def test_what_the_cpu_measured_stays(tmp_path: Path) -> None:
    evidence = rehearsal(tmp_path, PRODUCT, order=STEP, at8=2.0)
    measured = replace(wasted(), seen_on="cpu", basis="estimated", lost_us_per_step=5.0)
    assert told(evidence, measured)[0] is measured


def test_an_optimizer_in_a_loop_has_its_operators_time_and_no_price(tmp_path: Path) -> None:
    evidence = rehearsal(tmp_path, PRODUCT, order=STEP)
    loop = replace(wasted(3, "OPT001"), facts=(("steps at", "t.py:8"),))
    (one,) = told(evidence, loop)
    assert one.unpriced and one.basis == "none"
    assert [name for name, _ in one.facts] == ["steps at", "its operators keep the GPU busy"]
    elsewhere = replace(loop, facts=(("steps at", "t.py:99"),))
    assert told(evidence, elsewhere)[0].facts == elsewhere.facts


def test_every_finding_has_an_interval_or_a_reason_and_the_order_follows(tmp_path: Path) -> None:
    evidence = rehearsal(tmp_path, PRODUCT, order=STEP, at7=20.0, at8=1.5)
    found = (wasted(8), wasted(9), wasted(7), wasted(7, "SYNC001"), wasted(3, "OPT001"))
    judged = told(evidence, *found)
    for each in judged:
        assert bool(each.unpriced) == (each.basis == "none")
        if each.basis == "forecast":
            assert each.lost_us_per_step_low is not None
    ordered_ = prices.in_order(judged)
    places = [(each.code, each.site.line) for each in ordered_ if each.site is not None]
    assert places[:2] == [("WASTE002", 7), ("WASTE002", 8)]
    assert all(each.unpriced for each in ordered_[2:])


def test_a_part_has_an_interval_twice_as_wide_as_the_step() -> None:
    tensor = Tensor((1 << 20,))
    calls = [Call("aten::add", (tensor, tensor), (), (tensor,), times=20)]
    whole, part = forecast(counted(calls), "H200"), part_us(counted(calls), "H200")
    assert whole.low_us is not None and whole.high_us is not None and part is not None
    assert part == pytest.approx((whole.low_us * LOWER, whole.high_us * UPPER))
    half = part_us(counted(calls, steps=2), "H200")
    assert half is not None and half[1] == pytest.approx(part[1] / 2)
    assert part_us(counted([Call("mine::add", (tensor,))]), "H200") is None
