"""Steps of a script that writes its parameters by hand: where they end, and where none are."""

import subprocess
import sys

import pytest
import torch

from auditor.capture.instruments.autograd_graph import BACKWARD_HOOKS
from auditor.capture.target.script_steps import StepFinder


@pytest.fixture
def found():
    """A finder, and the numbers that are counted when its steps end."""
    ended, now = [], [0]
    finder = StepFinder(lambda: ended.append(now[0]), lambda text: None)
    finder.install()
    yield finder, ended, now
    finder.uninstall()


class Weights:
    """Two parameters and a loss of both."""

    def __init__(self):
        self.all = [torch.nn.Parameter(torch.ones(3)) for _ in range(2)]

    def backward(self):
        sum((each * 2).sum() for each in self.all).backward()

    @torch.no_grad()
    def update(self):
        for each in self.all:
            each.sub_(each.grad, alpha=0.1)
            each.grad = None

    def update_one_by_one(self):
        for each in self.all:
            with torch.no_grad():
                each -= 0.1 * each.grad
            each.grad = None

    def update_data(self):
        with torch.no_grad():
            for each in self.all:
                each.data = each.data - 0.1 * each.grad

    def update_with_gradients_off(self):
        with torch.set_grad_enabled(False):
            for each in self.all:
                each.mul_(0.9)


UPDATES = ["update", "update_one_by_one", "update_data", "update_with_gradients_off"]


@pytest.mark.parametrize("update", UPDATES)
def test_a_step_ends_where_parameters_were_written(found, update):
    finder, ended, now = found
    weights = Weights()
    for iteration in range(6):
        now[0] = iteration
        weights.backward()
        getattr(weights, update)()
        now[0] = iteration + 0.5
    assert ended == [2, 3, 4, 5] and finder.steps == 4  # two iterations that agree come first


def test_of_accumulated_gradients_one_step_is_an_update(found):
    finder, ended, now = found
    weights = Weights()
    for iteration in range(12):
        now[0] = iteration
        weights.backward()
        if iteration % 2:
            weights.update()
    assert ended == [5, 7, 9, 11]


def test_other_blocks_without_gradients_end_no_step(found):
    finder, ended, now = found
    weights, average = Weights(), torch.ones(3)
    for iteration in range(6):
        now[0] = iteration
        with torch.no_grad():
            average.lerp_(weights.all[0], 0.1)
        weights.backward()
        weights.update()
        with torch.no_grad():
            (weights.all[0] * 2).sum()
    assert ended == [2, 3, 4, 5]


def only_evaluates(weights):
    with torch.no_grad():
        (weights.all[0] * 2).sum()


def writes_before_any_backward(weights):
    with torch.no_grad():
        weights.all[0].mul_(0.5)


def only_looks_at_gradients(weights):
    weights.backward()
    with torch.no_grad():
        [each.grad.norm() for each in weights.all]


def averages_other_tensors(weights):
    weights.backward()
    with torch.no_grad():
        torch.ones(3).lerp_(weights.all[0], 0.1)


@pytest.mark.parametrize(
    "iteration",
    [only_evaluates, writes_before_any_backward, only_looks_at_gradients, averages_other_tensors],
)
def test_what_trains_nothing_has_no_steps(found, iteration):
    finder, ended, _ = found
    weights = Weights()
    for _ in range(5):
        iteration(weights)
    assert (ended, finder.steps) == ([], 0)


def test_an_optimizer_that_steps_takes_over(found):
    finder, ended, _ = found
    weights = Weights()
    optimizer = torch.optim.SGD(weights.all, lr=0.1)
    for _ in range(6):
        weights.backward()
        optimizer.step()
        with torch.no_grad():
            weights.all[0].clamp_(-1, 1)
    assert len(ended) == 6 == finder.optimizer_steps == finder.steps


def test_torch_is_put_back():
    blocks = torch.no_grad, torch.set_grad_enabled
    before = [vars(block)["__exit__"] for block in blocks]
    finder = StepFinder(lambda: None, lambda text: None)
    finder.install()
    assert [vars(block)["__exit__"] for block in blocks] != before
    finder.uninstall()
    assert [vars(block)["__exit__"] for block in blocks] == before
    assert not any(type(each).__name__ == "HandSteps" for each in BACKWARD_HOOKS._watchers)


def test_another_patch_that_came_later_stays():
    finder = StepFinder(lambda: None, lambda text: None)
    original = vars(torch.no_grad)["__exit__"]
    finder.install()
    try:
        torch.no_grad.__exit__ = later = lambda self, *args: original(self, *args)
        finder.uninstall()
        assert vars(torch.no_grad)["__exit__"] is later
    finally:
        torch.no_grad.__exit__ = original


def test_a_fault_of_ours_is_none_of_the_programs(found, monkeypatch):
    from auditor.capture.target import script_steps

    finder, ended, _ = found
    weights = Weights()
    weights.backward()
    monkeypatch.setattr(script_steps, "_state", None)
    for _ in range(4):
        weights.update()
        weights.backward()
    assert ended == [] and finder.steps == 0


def test_what_was_not_installed_ends_without_torch():
    """A script may fail before it imports torch: to import it then would begin the recording."""
    code = (
        "import sys; from auditor.capture.target.script_steps import StepFinder\n"
        "StepFinder(lambda: None, lambda text: None).uninstall()\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
