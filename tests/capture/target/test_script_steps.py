"""Steps of a script, found from its optimizers."""

import functools

import pytest
import torch

from auditor.capture.target.script_steps import StepFinder


def test_a_step_is_counted_and_stays_as_it_is():
    steps = []
    finder = StepFinder(lambda: steps.append(1))
    finder.install()
    try:
        parameter = torch.nn.Parameter(torch.ones(1))
        optimizer = torch.optim.SGD([parameter], lr=0.1)
        parameter.grad = torch.ones(1)
        optimizer.step()
        assert (steps, parameter.item()) == ([1], pytest.approx(0.9))
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
