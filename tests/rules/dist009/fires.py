"""DIST009 must name the marked lines."""

import torch
import torch.distributed as dist

from tests.echo_group import ranks


def _training(after):
    ranks()
    model = torch.nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    taken = iter(range(100_000))

    def step():
        optimizer.zero_grad()
        model(torch.randn(8, 8)).square().mean().backward()
        optimizer.step()
        after(next(taken))

    return step


def after_each_step():
    def after(number):
        dist.barrier()  # DIST009

    return _training(after)


def taken_by_name():
    from torch.distributed import barrier

    def after(number):
        barrier()  # DIST009

    return _training(after)


def on_every_second_step():
    def after(number):
        if number % 2 == 0:
            torch.distributed.barrier(group=None)  # DIST009

    return _training(after)
