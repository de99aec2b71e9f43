"""MEM020: hooks of some steps, over all passes of a run."""

from pathlib import Path

import torch

from tests.inprocess import record


def make():
    model, steps = torch.nn.Linear(8, 1), []

    def step():
        steps.append(len(steps))
        model(torch.ones(4, 8)).mean().backward()
        if len(steps) % 5 == 0:
            model.register_forward_hook(lambda *given: None)

    return step


def test_hooks_of_each_fifth_step_are_counted_by_the_steps_of_the_run(tmp_path):
    recording = record(tmp_path, make, ("hooks",), roots=[Path(__file__)], steps=12)
    (row,) = recording.rows("hooks")
    assert row["n"] == row["steps"] == row["all"] // 5 >= 3
