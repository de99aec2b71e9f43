"""Micro-batches whose gradients are added up."""

from __future__ import annotations

from auditor.rules.opt.micro_batches import MicroBatches

from tests.evidence.recorded.rows import loud


def test_steps_of_a_line_are_joined(seen):
    def row(step, n=4, **more):
        facts = {"at": 0, "optimizer": "SGD", "means": n, "batches": n, "n": n, **more}
        return loud(step, **facts)

    rows = [
        row(0),
        row(1),
        row(2, n=2),
        row(3, means=3),
        row(4, batches=1),
        row(5, changed=True),
        row(6, optimizer="Adam"),
    ]
    adam, sgd = seen(sites=[3], micro_batches=rows).get(MicroBatches).each
    assert (adam.optimizer, adam.steps, adam.undivided) == ("Adam", 1, 1)
    assert (sgd.site.line, sgd.steps, sgd.undivided, sgd.n) == (3, 6, 3, 4)
