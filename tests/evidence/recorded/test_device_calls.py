"""Calls that query or command the device, by line, with their time."""

from __future__ import annotations

import pytest

from auditor.evidence.recorded.device_calls import CallSite, DeviceCalls
from auditor.model import Site
from auditor.recordings.schema.sync import CallRow
from tests.evidence.recorded.rows import loud, quiet, steps

SITE = Site("trainer.py", 3)


def test_lines_of_the_quiet_pass(seen):
    call = {"name": "empty_cache", "n": 1, "us": 40.0}
    rows = [
        quiet(1, at=0, **call),
        quiet(1, at=0, **{**call, "name": "synchronize", "n": 2, "us": 100.0}),
        quiet(0, at=1, **call),
        quiet(2, at=0, **{**call, "name": "memory_stats"}),
        quiet(4, at=0, **call),  # did not complete
        loud(0, at=0, **call),
    ]
    table = seen(device="cuda", sites=[8, 5], steps=steps(4, "quiet") + steps(2), calls=rows).get(
        DeviceCalls
    )
    assert (table.device, table.steps, table.pass_name, len(table.calls)) == ("cuda", 4, "quiet", 5)
    first, second = table.sites(["empty_cache", "synchronize"])
    assert (first.site.line, first.name, first.per_step) == (5, "empty_cache", 0.25)
    assert (second.site.line, second.name, second.per_step) == (8, "synchronize", 0.75)
    assert (second.us_per_step, second.pattern.seen) == (35.0, (1,))
    assert second.facts == (
        ("call", "synchronize"),
        ("seen on", "1 of 4 steps of the timing pass"),
        ("host time", "35 us per step"),
    )


def test_without_a_quiet_step_the_loud_pass_has_counts_and_no_price(seen):
    rows = [loud(0, at=0, name="synchronize", n=3, us=9.0)]
    table = seen(sites=[8], steps=steps(6), calls=rows).get(DeviceCalls)
    (site,) = table.sites(["synchronize"])
    assert (table.steps, table.pass_name, site.per_step, site.price) == (6, "loud", 0.5, None)


@pytest.mark.parametrize("number", [4, 5])
def test_a_price_needs_five_steps_and_counts_those_without_a_call(number):
    calls = (CallRow(at=0, name="synchronize", step=1, n=1, us=50.0),) * 2
    price = CallSite(SITE, calls, number, "quiet").price
    if number < 5:
        assert price is None
    else:
        assert price.value == 20.0
        assert price.low < 0.0 < 40.0 < price.high


def test_no_steps_no_averages():
    site = CallSite(SITE, (), 0, "quiet")
    assert (site.per_step, site.us_per_step, site.price) == (0.0, 0.0, None)
