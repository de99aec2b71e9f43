"""Steps bound by copies: the whole and the recurring part on both sides of each knob."""

import pytest
from auditor.rules.copying import TransferRule

from auditor.evidence.trace.facts import PROFILER, TraceStep, TraceSteps
from auditor.model import Severity


def bound(*alone, us=10_000.0, slow=0.0, marked=True, source=PROFILER, copies=None):
    steps = tuple(
        TraceStep(
            us,
            to_device_us=each if copies is None else copies,
            to_device_alone_us=each,
            to_device_slow_us=slow,
        )
        for each in alone
    )
    table = TraceSteps(steps, source=source, marked=marked, device=True)
    return list(TransferRule.bound(TransferRule(), table, "to_device", "to it"))


@pytest.mark.parametrize(
    ("alone", "severity"),
    [
        ([1000.0] * 4, [None]),
        ([999.0] * 4, []),
        ([2000.0] * 4, [Severity.ERROR]),
        ([1990.0] * 4, [None]),
        ([9000.0, 0.0, 0.0, 0.0], []),  # the first step alone
        ([0.0, 1000.0, 1000.0, 1000.0], []),  # of the whole too little
        ([1000.0, 4000.0, 0.0, 0.0], [Severity.NOTE]),  # once after the first is no rhythm
        ([1000.0] * 2, [Severity.NOTE]),  # two steps are not certain
    ],
)
def test_the_share_of_the_whole_that_recurs(alone, severity):
    assert [finding.severity for finding in bound(*alone)] == severity


@pytest.mark.parametrize(("us", "found"), [(1000.0, True), (999.0, False)])
def test_a_tenth_of_a_millisecond_is_the_least(us, found):
    assert bool(bound(*[us / 10] * 4, us=us)) is found


def test_the_price_leaves_out_what_pinned_memory_saves():
    (finding,) = bound(*[2000.0] * 4, slow=500.0, copies=3000.0)
    assert (finding.lost_us_per_step, finding.basis) == (1500.0, "estimated")
    assert (finding.steps, finding.per_step, finding.seen_on) == (4, 1.0, "trace")
    assert finding.message == "for 20% of 4 steps the device only copies to it"
    assert finding.facts == (
        ("copies to it", "30% of the time"),
        ("not overlapped", "2 ms per step"),
        ("of that because the memory is pageable", "500 us per step"),
        ("steps from", PROFILER),
    )
    (pinned,) = bound(*[2000.0] * 4)
    assert (pinned.lost_us_per_step, len(pinned.facts)) == (2000.0, 3)
    (all_slow,) = bound(*[2000.0] * 4, slow=9000.0)
    assert all_slow.lost_us_per_step == 0.0
