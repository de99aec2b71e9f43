"""DIST014 must say nothing about these."""

import torch
from torch.nn.parallel import DistributedDataParallel

from tests.echo_group import ranks


class _Counted(torch.nn.Module):
    def __init__(self, change):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)
        self.register_buffer("mask", torch.ones(1024, 1024).tril(), persistent=False)
        self.register_buffer("seen", torch.zeros(8))
        self.change = change

    def forward(self, x):
        if self.training:
            self.change(self)
        return self.mask[:8, :8] @ self.layer(x) + self.seen


def _training(inner, **more):
    ranks()
    model = DistributedDataParallel(inner, **more)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        model(torch.randn(8, 8)).square().mean().backward()
        optimizer.step()

    return step


def running_statistics():
    norm = torch.nn.BatchNorm1d(8)
    return _training(torch.nn.Sequential(torch.nn.Linear(8, 8), norm, _Counted(lambda module: None)))


def codes_that_are_changed_behind_autograd():
    def change(module):
        module.seen.data.mul_(0.9).add_(0.1)

    return _training(_Counted(change))


def a_buffer_that_is_replaced():
    def change(module):
        module.seen = module.seen + 1

    return _training(_Counted(change))


def it_is_off():
    return _training(_Counted(lambda module: None), broadcast_buffers=False)


def no_buffers():
    return _training(torch.nn.Linear(8, 8))


def what_it_is_told_to_ignore():
    inner = _Counted(lambda module: None)
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(inner, ["mask", "seen"])
    return _training(inner)


def changed_by_the_last_step_of_the_pass():
    state = {"taken": 0}

    def change(module):
        state["taken"] += 1
        if state["taken"] % 7 == 0:
            module.seen += 1

    return _training(_Counted(change))


def a_plain_module():
    model = _Counted(lambda module: None)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        model(torch.randn(8, 8)).square().mean().backward()
        optimizer.step()

    return step
