"""Optimizers told to step parameter by parameter, by the line that made them."""

from __future__ import annotations

from auditor.rules.opt.single_tensor_steps import RunsOptimizerCalls, SingleTensorSteps

from tests.evidence.recorded.rows import loud, quiet, steps


def call(step, at=0, made_at=None, name="Adam", n=1, operators=10, row=loud):
    return row(step, call="step", at=at, made_at=made_at, name=name, n=n, operators=operators)


def test_by_the_line_that_made_it_else_that_steps_it(seen):
    rows = [
        call(0, made_at=1, n=2, operators=20),
        call(1, made_at=1, n=1, operators=40),
        call(0, name="SGD"),
        call(3, n=90),  # did not complete
        call(0, row=quiet),
        call(0, at=None),
    ]
    table = seen(sites=[9, 3], device="rehearse", steps=steps(3), optimizer=rows).get(
        SingleTensorSteps
    )
    assert (table.steps, len(table.calls)) == (3, 4)
    adam, sgd = table.alone()
    assert (adam.first.name, adam.first.made_at.line, adam.first.site.line) == ("Adam", 3, 9)
    assert (adam.per_step, adam.operators_per_call, adam.pattern.seen) == (1.0, 20.0, (0, 1))
    assert (sgd.first.name, sgd.first.made_at, sgd.per_step) == ("SGD", None, 1 / 3)


def test_a_rehearsal_has_no_trace_to_ask(seen):
    assert seen(device="rehearse", steps=[]).get(RunsOptimizerCalls) == RunsOptimizerCalls()
