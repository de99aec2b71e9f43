"""OPT008 at both sides of its thresholds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from auditor.rules.opt.micro_batches import AddedUp, MicroBatches
from auditor.rules.opt.opt008_loss_not_divided import LossNotDivided

from auditor.evidence import Machine, Source
from auditor.model import Site

ADDED = AddedUp(Site("t.py", 1, "step", "loss.backward()"), "SGD", 10, 9, 4)


@pytest.mark.parametrize(
    ("more", "line", "expected"),
    [
        ({}, "loss.backward()", 1),
        ({"undivided": 8}, "loss.backward()", 0),
        ({"steps": 3, "undivided": 3}, "loss.backward()", 1),
        ({"steps": 2, "undivided": 2}, "loss.backward()", 0),
        ({"optimizer": "AdamW"}, "loss.backward()", 0),
        ({}, "loss.backward(retain_graph=True)", 1),
        ({}, "loss.backward(gradient=part)", 0),
        ({}, "loss.backward(part)", 0),
    ],
)
def test_micro_batches_that_nothing_divides(more, line, expected):
    tables = MicroBatches((replace(ADDED, **more),)), Source({"t.py": line}), Machine()
    assert len(list(LossNotDivided().detect(*tables))) == expected
