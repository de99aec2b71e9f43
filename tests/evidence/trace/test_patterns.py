"""Shares of the patterns in a trace, and its optimizers."""

import pytest

from auditor.evidence.trace.patterns import (
    MANY_LAUNCHES,
    OptimizerCalls,
)


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
