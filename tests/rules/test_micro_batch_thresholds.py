"""OPT008 at both sides of its thresholds."""

import contextlib

import pytest
import torch
from auditor.rules.opt.gradients import LossNotDivided
from auditor.rules.opt.probes.gradients import _weight
from auditor.rules.opt.rows import MicroBatchRow
from torch.utils._python_dispatch import TorchDispatchMode

from auditor.evidence.source.files import Source
from auditor.model import Site
from tests.rules.asking import ask, rows

SITE = Site("t.py", 1, "step", "loss.backward()")


def row(step, n=4, **more):
    facts = {"at": 0, "optimizer": "SGD", "means": n, "batches": n, "n": n, **more}
    return MicroBatchRow(step=step, **facts)


@pytest.mark.parametrize(
    ("more", "line", "expected"),
    [
        ({}, "loss.backward()", 1),
        ({"undivided": 8}, "loss.backward()", 0),
        ({"undivided": 3, "steps": 3}, "loss.backward()", 1),
        ({"undivided": 2, "steps": 2}, "loss.backward()", 0),
        ({"optimizer": "AdamW"}, "loss.backward()", 0),
        ({}, "loss.backward(retain_graph=True)", 1),
        ({}, "loss.backward(gradient=part)", 0),
        ({}, "loss.backward(part)", 0),
    ],
)
def test_micro_batches_that_nothing_divides(more, line, expected):
    facts = {"steps": 10, "undivided": 9, "optimizer": "SGD", **more}
    given = [
        row(step, optimizer=facts["optimizer"], changed=step >= facts["undivided"])
        for step in range(facts["steps"])
    ]
    tables = rows(*given, sites=(SITE,)), Source({"t.py": line})
    assert len(list(ask(LossNotDivided(), *tables))) == expected


class Passing(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("factor", "weight"), [(3, 3.0), (0.5, 0.5), (torch.tensor(2.0), 2.0), (torch.ones(2), 0.0)]
)
@pytest.mark.parametrize("mode", [contextlib.nullcontext, Passing])
def test_the_weight_of_a_mean_is_read_under_a_dispatch_mode(mode, factor, weight):
    """A rehearsal runs in one: there autograd's own tensor of a number cannot be asked."""
    with mode():
        loss = torch.ones(4, requires_grad=True).mean() * factor
        assert _weight(loss.grad_fn) == weight
