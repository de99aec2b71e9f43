"""Steps of a script, found from its optimizers: an optimizer step that never returns is told."""

import functools

import pytest
import torch

from auditor.capture.target.script_steps import LONG_CLOSURE, StepFinder


class Evaluating(torch.optim.Optimizer):
    """Runs its closure so many times in one step."""

    def __init__(self, params, times):
        super().__init__(params, {})
        self.times = times

    def step(self, closure=None):
        return [closure() for _ in range(self.times)]


@pytest.mark.parametrize("as_keyword", [False, True])
@pytest.mark.parametrize(
    ("times", "told"), [(LONG_CLOSURE - 1, 0), (LONG_CLOSURE, 1), (LONG_CLOSURE * 2, 1)]
)
def test_a_closure_that_runs_again_and_again_inside_one_step_is_told_once(times, told, as_keyword):
    steps, said = [], []
    finder = StepFinder(lambda: steps.append(1), said.append)
    finder.install()
    try:
        optimizer = Evaluating([torch.nn.Parameter(torch.ones(1))], times)
        given = ((), {"closure": lambda: 7}) if as_keyword else ((lambda: 7,), {})
        assert optimizer.step(*given[0], **given[1]) == [7] * times
        assert len(said) == told and all("had not returned" in text for text in said)
        optimizer.times = LONG_CLOSURE
        optimizer.step(lambda: 7)
        assert (len(steps), len(said)) == (2, told)
    finally:
        finder.uninstall()
    optimizer.step(lambda: 7)
    assert len(steps) == 2


def test_a_step_without_a_closure_is_as_before():
    steps, said = [], []
    finder = StepFinder(lambda: steps.append(1), said.append)
    finder.install()
    try:
        parameter = torch.nn.Parameter(torch.ones(1))
        optimizer = torch.optim.SGD([parameter], lr=0.1)
        parameter.grad = torch.ones(1)
        optimizer.step()
        assert (steps, said, parameter.item()) == ([1], [], pytest.approx(0.9))
    finally:
        finder.uninstall()


@pytest.mark.parametrize(
    ("within", "said"),
    [
        (0, ""),
        (1, "Adam (t.py:2); SGD (t.py:1) steps once within it"),
        (5, "Adam (t.py:2); SGD (t.py:1) steps 5 times within it"),
    ],
)
def test_of_several_optimizers_it_is_said_which_ends_a_step(within, said):
    places = iter(f" (t.py:{line})" for line in ([1] if within else []) + [2])
    finder = StepFinder(lambda: None, place=lambda: next(places))
    finder.install()
    try:
        inner = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))]) if within else None
        outer = torch.optim.Adam([torch.nn.Parameter(torch.ones(1))])
        for _ in range(8):
            for _ in range(within):
                inner.step()
            outer.step()
    finally:
        finder.uninstall()
    assert finder.ends == said


@pytest.mark.parametrize(("gone", "steps"), [(True, 4 + 2), (False, 4)])
def test_steps_end_with_another_optimizer_once_the_chosen_one_is_gone(gone, steps):
    """A teacher is trained before the student, whose optimizer may have the same id."""
    for _ in range(20):
        ended: list[int] = []
        finder = StepFinder(functools.partial(ended.append, 1))
        finder.install()
        try:
            teacher = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
            for _ in range(4):
                teacher.step()
            if gone:
                del teacher
            student = torch.optim.Adam([torch.nn.Parameter(torch.ones(1))])
            for _ in range(3):
                student.step()
        finally:
            finder.uninstall()
        assert len(ended) == steps
