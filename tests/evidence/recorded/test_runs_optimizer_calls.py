"""Calls of optimizers in a trace: a rehearsal has none."""

from auditor.rules.opt.optimizer_kernels import RunsOptimizerCalls


def test_a_rehearsal_has_no_trace_to_ask(seen):
    assert seen(device="rehearse", steps=[]).get(RunsOptimizerCalls) == RunsOptimizerCalls()
