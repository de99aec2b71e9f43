"""Schedulers, and how many steps an epoch of the loader that feeds them has."""

from __future__ import annotations

import pytest
from auditor.rules.opt.scheduler_steps import Scheduled, SchedulerSteps

from auditor.model import Site
from tests.evidence.recorded.rows import loud, steps

ROW = {"at": 0, "name": "StepLR", "calls": 10, "steps": 9, "apart": 1, "epoch": 10, "gone": 90}


def scheduled(seen, given, length=400, in_pass=8):
    loaders = [{"loader": number, "length": length} for number in given]
    batches = [
        loud(step, loader=number, n=n) for step in range(8) for number, n in given.items() if n
    ]
    row = loud(7, in_pass=in_pass, **ROW)
    table = seen(sites=[4], schedulers=[row], loaders=loaders, batches=batches, steps=steps(8))
    (each,) = table.get(SchedulerSteps).each
    assert (each.site.line, each.name, each.gone) == (4, "StepLR", 90)
    return each.steps_of_an_epoch


@pytest.mark.parametrize(
    ("given", "expected"),
    [({0: 1}, 400), ({0: 4}, 100), ({0: 4, 1: 1}, 100), ({0: 3, 1: 1}, None), ({}, None)],
)
def test_an_epoch_is_that_of_the_loader_that_gave_nearly_all(seen, given, expected):
    assert scheduled(seen, given) == expected


def test_no_epoch_without_a_length(seen):
    assert scheduled(seen, {0: 1}, length=None) is None


def test_no_epoch_where_its_optimizer_did_not_step(seen):
    assert scheduled(seen, {0: 1}, in_pass=0) is None


@pytest.mark.parametrize(
    ("calls", "stepped", "apart", "each"), [(9, 8, 1, True), (9, 8, 0, False), (9, 9, 1, False)]
)
def test_each_step_is_one_call_for_one_step(calls, stepped, apart, each):
    found = Scheduled(Site("train.py", 3), "StepLR", calls, stepped, apart, calls)
    assert found.each_step is each
