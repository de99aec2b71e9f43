"""Shares of the patterns in a trace, and its optimizers."""

import pytest
from auditor.rules.dist.communication import Job
from auditor.rules.mem.segments import DevicePeak

from auditor.evidence.trace.patterns import (
    MANY_LAUNCHES,
    NOWHERE,
    OptimizerCalls,
    Structure,
    Tuning,
    Where,
)
from auditor.model import Site


def test_shares_of_kernel_time():
    table = Structure(
        kernel_us=200.0, attention_us=50.0, transposes=(("nchwToNhwc", 5.0), ("nhwcToNchw", 4.0))
    )
    assert (table.attention_share, table.transpose_us) == (0.25, 9.0)
    empty = Structure(attention_us=5.0)
    assert (empty.attention_share, empty.transpose_us) == (0.0, 0.0)
    assert Structure(kernel_us=0.5, attention_us=5.0).attention_share == 10.0


def test_on_which_steps_algorithms_were_tried():
    assert Structure(steps=4, tuning=Tuning(frozenset({1, 3}), 2, 5.0)).tuned.seen == (1, 3)
    assert Structure(steps=4).tuned.seen == ()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, True),
        ({"launches_per_call": MANY_LAUNCHES - 1.0}, False),
        ({"calls": 0}, False),
        ({"foreach": 1}, False),
        ({"fused": 1}, False),
    ],
    ids=str,
)
def test_an_optimizer_that_steps_parameter_by_parameter(more, said):
    facts = {"calls": 1, "launches_per_call": float(MANY_LAUNCHES), **more}
    assert OptimizerCalls(**facts).one_by_one is said


def test_exposed_communication():
    assert Job(window_us=200.0, exposed_us=50.0).exposed_share == 0.25
    assert Job(window_us=0.0, exposed_us=50.0).exposed_share == 0.0
    assert Job(window_us=0.5, exposed_us=0.25).exposed_share == 0.5


def test_capacity():
    peak = DevicePeak(0, "A100", 30, 40, 80)
    assert (peak.share, peak.reserved_share) == (0.375, 0.5)


def test_a_place_in_words():
    site = Site("train.py", 3, "step")
    assert (str(Where(site)), str(NOWHERE)) == (" in step", "")
