"""Activation checkpoints without a variant: which calls belong together, and how often they ran."""

from __future__ import annotations

from auditor.rules.ckpt.activation_checkpointing import ActivationCheckpointing

from tests.evidence.recorded.rows import loud, steps


def call(step, at=0, name="checkpoint", library="", n=1, *, lost=False):
    return loud(step, at=at, name=name, library=library, n=n, lost=lost)


def test_calls_are_counted_by_line_function_and_library(seen):
    rows = [
        call(0, n=2, lost=True),
        call(1, n=3),
        call(3, n=50, lost=True),  # the step did not complete
        call(1, at=1),
        call(0, name="checkpoint_sequential"),
        call(2, library="lib.py:run", n=4, lost=True),
    ]
    table = seen(sites=[8, 9], steps=steps(3), recompute=rows).get(ActivationCheckpointing)
    assert table.steps == 3
    assert [(each.site.line, each.name, each.library) for each in table.unchosen] == [
        (8, "checkpoint", ""),
        (8, "checkpoint", "lib.py:run"),
        (8, "checkpoint_sequential", ""),
        (9, "checkpoint", ""),
    ]
    assert [(each.n, each.lost) for each in table.unchosen] == [(5, 2), (4, 4), (1, 0), (1, 0)]
    assert [each.pattern.seen for each in table.unchosen] == [(0, 1), (2,), (0,), (1,)]


def test_without_a_completed_step_nothing_is_said(seen):
    table = seen(sites=[8], steps=[], recompute=[call(0)]).get(ActivationCheckpointing)
    assert (table.steps, table.unchosen) == (0, ())
