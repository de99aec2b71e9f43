"""The rules about a trace's steps at the edges of their thresholds, on tables made by hand: no
torch, no trace.
"""

import pytest
from auditor.rules.data.data007_input_bound import StepWaitsForInput
from auditor.rules.data.datasets import StepBoundByCopiesToDevice
from auditor.rules.mem.segments import DeviceMemoryNearlyFull, DevicePeak, TraceMemory
from auditor.rules.sync.waiting import StepBoundByCopiesToHost
from auditor.rules.time.storage_syncs import UnattributedTime

from auditor.evidence.trace.facts import Silence, TraceStep, TraceSteps
from auditor.model import Severity
from auditor.rule import NotLooked

WARNING, NOTE, ERROR, NOTHING = None, Severity.NOTE, Severity.ERROR, "nothing"


def steps(count=4, us=100_000.0, source="ProfilerStep", **parts):
    """A table of equal steps; ``parts`` are shares of their time."""
    one = TraceStep(us, **{f"{name}_us": share * us for name, share in parts.items()})
    facts = {"device": True, "loader": "_SingleProcess", "silence": Silence(9e3)}
    return TraceSteps((one,) * count, source, source != "whole trace", **facts)


def said(findings):
    """The severity of the only finding (None: the rule's own), or "nothing"."""
    found = list(findings)
    assert len(found) <= 1
    return found[0].severity if found else NOTHING


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0.09, NOTHING), (0.11, NOTE), (0.19, NOTE), (0.2, WARNING), (0.39, WARNING), (0.4, ERROR)],
)
def test_share_of_waiting_for_input(share, expected):
    assert said(StepWaitsForInput().in_trace(steps(loader_alone=share))) == expected


@pytest.mark.parametrize(
    "more",
    [{"count": 2}, {"source": "optimizer"}, {"source": "whole trace", "count": 1}, {"us": 2000.0}],
)
def test_waiting_for_input_is_a_note_where_steps_are_few_guessed_or_short(more):
    assert said(StepWaitsForInput().in_trace(steps(loader_alone=0.45, **more))) == NOTE


def burst(*waiting, count=9, us=100_000.0):
    """Steps of which those of ``waiting`` (numbers from 0) wait nine tenths of their time."""
    waits = (0.9 * us * (number in waiting) for number in range(count))
    made = tuple(TraceStep(us, loader_alone_us=each) for each in waits)
    return TraceSteps(made, "ProfilerStep", True, device=True, loader="_MultiProcessing")


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (burst(2, 6), WARNING),  # a fifth of the whole, in two bursts
        (burst(2, 4, 6, 8), ERROR),  # 40 %
        (burst(2, 5, count=20), NOTHING),  # 9 %
        (burst(4, count=5), NOTE),  # one burst alone
        (burst(0, 4, count=7), NOTE),  # the first starts the workers
        (burst(0, count=4), NOTHING),
    ],
)
def test_a_loader_is_judged_by_its_share_of_the_whole(table, expected):
    assert said(StepWaitsForInput().in_trace(table)) == expected


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({}, "no torch DataLoader"),
        ({"loader": "_Iter", "device_missing": True}, "none of its work"),
    ],
)
def test_waiting_for_input_is_not_judged_without_a_loader_or_the_devices_work(facts, why):
    with pytest.raises(NotLooked, match=why):
        list(StepWaitsForInput().in_trace(TraceSteps((TraceStep(1.0),), **facts)))


@pytest.mark.parametrize(
    ("share", "expected"), [(0.09, NOTHING), (0.1, WARNING), (0.19, WARNING), (0.2, ERROR)]
)
def test_share_of_copies(share, expected):
    assert said(StepBoundByCopiesToDevice().detect(steps(to_device_alone=share))) == expected
    assert said(StepBoundByCopiesToHost().detect(steps(to_host_alone=share))) == expected


@pytest.mark.parametrize(("share", "expected"), [(0.19, NOTHING), (0.2, WARNING), (0.94, WARNING)])
def test_share_of_unknown_time_has_no_price(share, expected):
    found = list(UnattributedTime().detect(steps(unknown=share)))
    assert said(found) == expected
    assert all(one.lost_us_per_step is None for one in found)


def test_a_trace_that_shows_next_to_nothing_is_not_judged():
    with pytest.raises(NotLooked, match="cut down"):
        list(UnattributedTime().detect(steps(unknown=0.95)))


@pytest.mark.parametrize(
    ("allocated", "reserved", "expected"),
    [
        (899, 969, NOTHING),
        (900, 950, WARNING),
        (969, 980, WARNING),
        (970, 980, ERROR),
        (500, 970, NOTE),
    ],
)
def test_share_of_the_devices_memory(allocated, reserved, expected):
    memory = TraceMemory((DevicePeak(0, "", allocated, reserved, 1000),))
    assert said(DeviceMemoryNearlyFull().detect(memory)) == expected
